"""Small changes of one operation, each a slip of the pen: another sign, a factor, an operand too many."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from kernels_core.blame.replay import Values
from kernels_core.program import Ref, Step

Tensor = torch.Tensor
_SUMS = {"add": "+", "sub": "-"}
_LENGTH = 6


def edits(step: Step, values: Values, ratio: float | None) -> Iterator[tuple[str, Tensor]]:
    """Yield what the step would return after a small change, with words for the change ("with + in place of -").

    Args:
        step: to be changed; its first result counts.
        values: of all steps.
        ratio: exact / actual of the wrong tensor, where that is one number.
    """
    result = values[Ref(step.number)]
    kind = step.name.split(".")[1]
    if result.dtype is torch.bool:
        yield "the other way round", ~result
        return
    if not result.is_floating_point():
        return
    yield from _other_constant(step, kind, result, ratio)
    yield from _other_sign(step, kind, values, result)
    yield from _without_operand(step, kind, values, result)
    yield from _mean_and_sum(step, kind, values, result)
    if result.dim() >= 2 and result.shape[-1] == result.shape[-2]:
        yield "transposed", result.mT


def _other_constant(step: Step, kind: str, result: Tensor, ratio: float | None) -> Iterator[tuple[str, Tensor]]:
    """A factor that is written as a number."""
    numbers = [a for a in step.args if isinstance(a, (int, float)) and not isinstance(a, bool)]
    if ratio is None or kind not in ("mul", "div") or len(numbers) != 1:
        return
    old = numbers[0]
    new = old * ratio if kind == "mul" else old / ratio
    yield f"with {_number(new)} in place of {_number(old)}", result * ratio


def _number(value: float) -> str:
    text = f"{value:.{_LENGTH}g}"
    return text.removesuffix(".0")


def _other_sign(step: Step, kind: str, values: Values, result: Tensor) -> Iterator[tuple[str, Tensor]]:
    if kind in _SUMS and len(step.args) >= 2 and not step.kwargs:
        first, second = (values[a] if isinstance(a, Ref) else a for a in step.args[:2])
        other = "sub" if kind == "add" else "add"
        yield (f"with {_SUMS[other]} in place of {_SUMS[kind]}", first - second if kind == "add" else first + second)
        if kind == "sub":
            yield "with its operands exchanged", second - first
            return
    yield "with the other sign", -result


def _without_operand(step: Step, kind: str, values: Values, result: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A factor or a summand too many."""
    if kind not in ("mul", "add", "sub", "div") or len(step.args) < 2:
        return
    for keep in step.args[:2] if kind in ("mul", "add") else step.args[:1]:
        if isinstance(keep, Ref) and values[keep].is_floating_point():
            yield f"without the other operand of its {_WORDS[kind]}", values[keep].expand(result.shape)


_WORDS = {"mul": "product", "add": "sum", "sub": "difference", "div": "quotient"}


def _mean_and_sum(step: Step, kind: str, values: Values, result: Tensor) -> Iterator[tuple[str, Tensor]]:
    if kind not in ("mean", "sum") or not step.operands or not result.numel():
        return
    count = values[step.operands[0]].numel() / result.numel()
    if kind == "mean":
        yield "with a sum in place of the mean", result * count
    else:
        yield "with a mean in place of the sum", result / count


def constant_ratio(exact: Tensor, actual: Tensor) -> float | None:
    """Return exact / actual where it is one number to 1e-6, None elsewhere."""
    exact, actual = exact.reshape(-1), actual.reshape(-1)
    if exact.shape != actual.shape:
        return None
    usable = (actual != 0) & exact.isfinite() & actual.isfinite()
    if not bool(usable.any()) or not bool((exact[~usable] == actual[~usable]).all()):
        return None
    ratio = exact[usable] / actual[usable]
    middle = float(ratio.median())
    close = math.isfinite(middle) and bool(((ratio - middle).abs() <= 1e-6 * abs(middle)).all())
    return middle if close else None
