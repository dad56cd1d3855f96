"""Operations without a double-double evaluation of their own: each element by FLINT, within a limit of cost.

The operands' numbers become balls, mid + low +- rad, the rule's own exact part is evaluated on them, and the ball that
comes out becomes a number again. So every operation that has a rule has a double-double evaluation, of as many bits as
its operands have; beyond the limit, and where balls do not separate what an order needs, nothing is known.

Integer results are the rule's, for certain where no rounding can change them (`about_mid`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flint
import numpy as np
import torch

from kernels_core.doubles import systems
from kernels_core.doubles.error_free import two_sum
from kernels_core.doubles.number import DoubleDouble
from kernels_core.doubles.record import Truth
from kernels_core.doubles.taylor import at_precision
from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotRationalError, NotSeparatedError, Numbers
from kernels_core.exact.tier import Call
from kernels_core.program import Ref, Step
from kernels_core.rules import registry

Tensor = torch.Tensor
Objects = Any

LARGEST_CONE = 1 << 17  # operand elements that one result may need altogether: about a second
PRECISION = 256  # bits of the balls; what comes out is rounded to about 106
_ACCURATE = 2.0**-10  # of the bound: what is further off is left to FLINT where that is affordable
_NONE = np.zeros(0, dtype=np.int64)
_TOO_HARD = (NotRationalError, NotSeparatedError)


class _Integers(dict[Ref, Enclosure]):
    """The integers that are known; an exact part that asks for another cannot be evaluated."""

    def __missing__(self, ref: Ref) -> Enclosure:
        raise NotSeparatedError


def evaluated(
    step: Step, args: Any, kwargs: Any, operands: Sequence[Enclosure], results: Sequence[Enclosure | None]
) -> list[Any]:
    """Return the results of a step; `results` are those of its rule, integers as decided about the midpoints."""
    if any(not op.floating and op.rad is not None for op in operands):
        return [lost(value) for value in results if value is not None]
    known = _Integers(zip(step.operands, operands, strict=True))
    own = {Ref(step.number, k): value for k, value in enumerate(results) if value is not None and not value.floating}
    known.update({ref: value for ref, value in own.items() if _doubt(value) is None})
    found: list[Any] = []
    for output, value in enumerate(results):
        if value is None:
            continue
        if not value.floating:
            found.append(Truth(value.mid, _doubt(value)))
        elif not value.mid.numel() or value.bound is None or bool(value.bound.isinf().all()):
            found.append(lost(value))
        else:
            found.append(_result(step, output, args, kwargs, operands, known, value))
    return found


def _doubt(value: Enclosure) -> Tensor | None:
    return value.unsure if value.unsure is not None and bool(value.unsure.any()) else None


def lost(value: Enclosure) -> DoubleDouble | Truth:
    """Return what nothing is known of."""
    if not value.floating:
        return Truth(value.mid, torch.ones((), dtype=torch.bool, device=value.mid.device))
    return DoubleDouble(value.mid, value.mid.new_zeros(()), value.mid.new_full((), torch.inf))


def _result(
    step: Step,
    output: int,
    args: Any,
    kwargs: Any,
    operands: Sequence[Enclosure],
    known: _Integers,
    value: Enclosure,
) -> DoubleDouble | Truth:
    """Return one floating result: by FLINT, or from residuals where that is accurate enough."""
    direct = None
    if output == 0 and step.name in systems.EVALUATIONS:
        direct = systems.EVALUATIONS[step.name](*args, **kwargs)
        if bool(((direct.rad <= value.bound_or_zero() * _ACCURATE) | (value.bound_or_zero() == 0)).all()):
            return direct
    values = at_precision(lambda: _within_limit(Call(step, output, _NONE, known), value.mid.numel(), operands))
    if values is None:
        return direct if direct is not None else lost(value)
    return _number(values, value)


def _within_limit(call: Call, count: int, operands: Sequence[Enclosure]) -> Objects | None:
    """Return the exact values of a result, None where they cost too much or are not settled."""
    cone = registry()[call.step.name].cone
    try:
        one = sum(np.asarray(part).size for part in cone(dataclasses.replace(call, index=np.zeros(1, dtype=np.int64))))
        if max(one, 1) * count > LARGEST_CONE:
            return None
        call = dataclasses.replace(call, index=np.arange(count, dtype=np.int64))
        return _exactly(call, tuple(np.asarray(part, dtype=np.int64) for part in cone(call)), operands)
    except _TOO_HARD:
        return None


def _exactly(call: Call, cones: tuple[np.ndarray, ...], operands: Sequence[Enclosure]) -> Objects | None:
    """Return the exact values by balls, or by rationals where these tie; None where neither settles."""
    plain = all(op.low is None and op.rad is None for op in operands)
    for precision in (PRECISION, None) if plain else (PRECISION,):
        numbers = Numbers(precision)
        full = dataclasses.replace(call, numbers=numbers, indices=cones)
        with numbers.active():
            try:
                given = [_taken(op, cone, numbers) for op, cone in zip(operands, cones, strict=True)]
                found = np.asarray(registry()[call.step.name].exact(full, *given), dtype=object).reshape(-1)
                return np.array([_three(numbers.real(v)) for v in found])
            except _TOO_HARD:
                continue
    return None


def _taken(operand: Enclosure, cone: np.ndarray, numbers: Numbers) -> Objects:
    """Return the elements of an operand that a cone asks for; an element that is not needed is any."""
    if not cone.size:
        return np.empty(cone.shape, dtype=object)
    needed, place = np.unique(np.maximum(cone, 0), return_inverse=True)

    def part(tensor: Tensor) -> np.ndarray:
        return tensor.expand(operand.shape).reshape(-1)[torch.from_numpy(needed)].cpu().numpy()

    values = numbers.array(part(operand.mid))
    if operand.floating and (operand.low is not None or operand.rad is not None):
        zero = operand.mid.new_zeros(())
        low, rad = (zero if tensor is None else tensor for tensor in (operand.low, operand.rad))
        values = values + np.array(
            [flint.arb(*pair) for pair in zip(part(low).tolist(), part(rad).tolist(), strict=True)]
        )
    return values[place.reshape(cone.shape)]


def _three(value: Any) -> tuple[float, float, float]:
    """Return hi, lo and a bound of what they leave; NaN where the value is not finite."""
    ball = flint.arb(value)
    if not ball.is_finite():
        return float("nan"), 0.0, float("inf")
    hi = float(ball.mid())
    rest = ball - hi
    low = float(rest.mid())
    return hi, low, float((rest - low).abs_upper()) * (1 + 2.0**-50) + 2.0**-1074


def _number(found: np.ndarray, value: Enclosure) -> DoubleDouble:
    hi, lo, rad = torch.from_numpy(np.ascontiguousarray(found.T)).to(value.mid.device).reshape(3, *value.shape)
    return DoubleDouble(*two_sum(hi, lo), rad)
