"""Hypotheses about the values alone: NaN, zero, a sign, a constant factor, a sum in place of a mean."""

from __future__ import annotations

import fractions
import math
from collections.abc import Iterator

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis
from kernels_core.formats import format_of

Tensor = torch.Tensor
_DENOMINATOR = 16
_SIZE = 5  # a factor below this is no evidence of a size

# Factors that a formula loses or gains.
_CONSTANTS = {
    "the square root of 2": math.sqrt(2), "1 / square root of 2": math.sqrt(0.5), "pi": math.pi, "2 pi": 2 * math.pi,
    "ln 2": math.log(2), "1 / ln 2": 1 / math.log(2), "ln 10": math.log(10), "1 / ln 10": 1 / math.log(10),
    "2 / square root of pi": 2 / math.sqrt(math.pi), "1 / square root of 2 pi": 1 / math.sqrt(2 * math.pi),
}  # fmt: skip


def _all_nan(evidence: Evidence) -> Iterator[Candidate]:
    yield Candidate("{count} NaN", evidence.mid * torch.nan, evidence.bound, everywhere=False, known=torch.inf)


def _all_zero(evidence: Evidence) -> Iterator[Candidate]:
    zero = torch.zeros_like(evidence.mid)
    yield Candidate("{count} zero", zero, zero, everywhere=False, known=torch.inf)


def _opposite_sign(evidence: Evidence) -> Iterator[Candidate]:
    yield Candidate("{count} minus the exact value: the sign is wrong", -evidence.mid, evidence.bound, everywhere=False)


def _constant_factor(evidence: Evidence) -> Iterator[Candidate]:
    guess = _ratio(evidence)
    if guess is None:
        return
    simple = fractions.Fraction(guess).limit_denominator(_DENOMINATOR)
    if simple not in (0, 1):
        yield _scaled(evidence, float(simple), f"{_written(simple)} times the exact value")
    for name, constant in _CONSTANTS.items():
        for sign in (1, -1):
            words = f"{'minus ' * (sign < 0)}{name} ({sign * constant:.6g}) times the exact value"
            yield _scaled(evidence, sign * constant, words)
    for number, owner in _sizes(evidence).items():
        root = math.sqrt(number)
        for name, factor in ((f"the square root of {number}", root), (f"1 / square root of {number}", 1 / root)):
            yield _scaled(evidence, factor, f"{name} ({factor:.6g}) times the exact value: {owner}")
    yield _scaled(evidence, guess, f"{guess:.6g} times the exact value", tight=True)


def _sum_and_mean(evidence: Evidence) -> Iterator[Candidate]:
    """The factor is a number of elements, or one over it."""
    for number, owner in _sizes(evidence).items():
        words = f"{number} times the exact value: {owner}, so a sum in place of a mean"
        yield _scaled(evidence, float(number), words)
        words = f"1/{number} of the exact value: {owner}, so a mean in place of a sum"
        yield _scaled(evidence, 1.0 / number, words)


def _scaled(evidence: Evidence, factor: float, words: str, tight: bool = False) -> Candidate:
    """Return `factor` times the interval, with a rounding for the factor and one for the product."""
    mid = factor * evidence.mid
    bound = abs(factor) * evidence.bound + 2 * format_of(evidence.actual.dtype).unit_roundoff * mid.abs()
    if tight and bool((mid != 0).any()):  # a fitted factor is known no better than the element it was read off
        bound = bound * 2
    return Candidate("{count} " + words, mid, bound, everywhere=False, fitted=1)


def _ratio(evidence: Evidence) -> float | None:
    """Return actual / exact of the failing element that tells it best, None where some have none."""
    exact, actual = evidence.mid[evidence.failing], evidence.value[evidence.failing]
    bound = evidence.bound[evidence.failing]
    if not bool((exact.isfinite() & actual.isfinite() & (exact != 0)).all()):
        return None
    best = int(torch.argmin(bound / exact.abs()))
    return float(actual[best] / exact[best])


def _written(value: fractions.Fraction) -> str:
    if value.denominator in (1, 2, 4, 5, 8, 10, 16):
        return f"{float(value):g}"
    return f"{value.numerator}/{value.denominator}"


def _sizes(evidence: Evidence) -> dict[int, str]:
    """Return the numbers of elements of what the kernel may have averaged over, with who has them."""
    tensors = {} if evidence.setting is None else dict(evidence.setting.check.tensors)
    found: dict[int, str] = {}
    for name, tensor in tensors.items():
        found.setdefault(tensor.numel(), f"{name} has as many elements")
        for dim, size in enumerate(tensor.shape):
            found.setdefault(size, f"dimension {dim} of {name} has that size")
    return {number: owner for number, owner in found.items() if number >= _SIZE}


HYPOTHESES = (
    Hypothesis("NaN", "every failing element is NaN", _all_nan),
    Hypothesis("zero", "every failing element is 0", _all_zero),
    Hypothesis("sign", "-exact", _opposite_sign),
    Hypothesis("sum and mean", "n exact or exact / n, n a size of an input", _sum_and_mean),
    Hypothesis("constant factor", "c exact, c a small fraction, a known constant or read off", _constant_factor),
)
