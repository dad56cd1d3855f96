"""Comparisons, logic and what is chosen by them, by ATen's names."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

from kernels_core.doubles.number import DoubleDouble, exactly, number, select, unknown
from kernels_core.doubles.order import absolute, below, maximum, minimum, unordered
from kernels_core.doubles.record import Call, Evaluation, Truth, doubtful, fine, floating
from kernels_core.enclosure import Enclosure
from kernels_core.rules.comparisons import compared

Tensor = torch.Tensor


# Order ----------------------------------------------------------------------------------------------------------------


def _comparison(holds: Callable[[DoubleDouble, DoubleDouble], Tensor]) -> Evaluation:
    """Return the evaluation of a comparison, NaN and infinities compare as float64 does."""

    def evaluate(call: Call, a: Any, b: Any) -> Truth:
        x, y = fine(a), fine(b)
        operands = call.local.step.operands
        if len(operands) == 2 and operands[0] == operands[1]:  # a test for NaN
            return Truth(call.value.mid, ~x.rad.isfinite())
        plain = x.hi.isfinite() & y.hi.isfinite()
        return Truth(torch.where(plain, holds(x, y), call.value.mid), _open(x, y))

    return evaluate


def _open(x: DoubleDouble, y: DoubleDouble) -> Tensor:
    """Return where a comparison is not decided: certain infinities are in order with everything that is known."""
    known = (x.rad + y.rad).isfinite()
    return unordered(x, y) & (~known | (x.hi.isfinite() & y.hi.isfinite()))


def _equal(x: DoubleDouble, y: DoubleDouble) -> Tensor:
    return (x.hi == y.hi) & (x.lo == y.lo)


def classified(call: Call, a: Any) -> Truth:
    """Return isnan, isinf, isfinite as the rule has it."""
    return Truth(call.value.mid, ~fine(a).rad.isfinite())


def logic(call: Call, *operands: Any, **_: Any) -> Truth:
    """Return a logical operation as the rule has it, on booleans that are exact; open where one of them is."""
    doubts = [doubt for doubt in map(doubtful, operands) if doubt is not None]
    doubts += [fine(v).rad > 0 for v in operands if isinstance(v, Enclosure) and v.floating and v.rad is not None]
    return Truth(call.value.mid, functools.reduce(operator.or_, doubts) if doubts else None)


# Choices --------------------------------------------------------------------------------------------------------------


def _chosen(
    call: Call, condition: Tensor, doubt: Tensor | None, unsure: Tensor | None, a: Any, b: Any
) -> DoubleDouble | Truth:
    """Return a where the condition holds, else b.

    In the runs at kinks and at NaN, where the condition is unsure, the rule's midpoint stands for no exact value: it is
    the reference itself, which what follows is measured against. Elsewhere the rule's bound spans both sides there,
    which both must be known for.
    """
    if not call.value.floating:
        either = [d for d in (doubt, doubtful(a), doubtful(b)) if d is not None]
        return Truth(call.value.mid, torch.ones((), dtype=torch.bool) if either else None)
    sides = fine(a), fine(b)
    found = select(condition, *sides)
    found = found if doubt is None else unknown(found, doubt)
    if unsure is not None:
        found = unknown(found, unsure & ~(sides[0].rad + sides[1].rad).isfinite())
    return select(unsure, exactly(call.value.mid), found) if call.local.leaves_open and unsure is not None else found


def where(call: Call, condition: Any, a: Any, b: Any) -> DoubleDouble | Truth:
    """Return a where the condition holds, else b."""
    return _chosen(call, condition.mid != 0, doubtful(condition), condition.unsure, a, b)


def masked_fill(call: Call, a: Any, mask: Any, value: Any) -> DoubleDouble | Truth:
    """Return the value where the mask holds, else a."""
    return where(call, mask, value, a)


def _passed(call: Call, grad: Any, side: Enclosure, x: DoubleDouble, level: float) -> Any:
    """Return zero where x, a value or its size with the enclosure `side`, is not above a level, else the gradient.

    NaN passes it.
    """
    bar = number(float(level))
    unsure = compared(call.local, torch.le, side, level, kinked=True).unsure if call.local.leaves_open else None
    stopped = ~below(bar, x) & ~x.hi.isnan()
    return _chosen(call, stopped, _open(x, bar), unsure, 0.0, grad)


def threshold_backward(call: Call, grad: Any, a: Any, threshold: float) -> Any:
    """Return grad where x > threshold, else 0."""
    return _passed(call, grad, a, fine(a), threshold)


def shrink_backward(call: Call, grad: Any, a: Any, lambd: float) -> Any:
    """Return grad where |x| > lambda, else 0."""
    return _passed(call, grad, Enclosure(a.mid.abs(), a.bound), absolute(fine(a)), lambd)


def clamp(call: Call, a: Any, low: Any = None, high: Any = None) -> DoubleDouble | Truth:
    """Return min(max(a, low), high)."""

    def between() -> DoubleDouble:
        found = fine(a)
        found = found if low is None else maximum(found, fine(low))
        return found if high is None else minimum(found, fine(high))

    return floating(call, between, a, low, high)


def clamp_max(call: Call, a: Any, high: Any) -> DoubleDouble | Truth:
    """Return min(a, high)."""
    return clamp(call, a, None, high)


COMPARISONS: dict[str, Evaluation] = {
    "lt": _comparison(below),
    "gt": _comparison(lambda x, y: below(y, x)),
    "le": _comparison(lambda x, y: ~below(y, x)),
    "ge": _comparison(lambda x, y: ~below(x, y)),
    "eq": _comparison(_equal),
    "ne": _comparison(lambda x, y: ~_equal(x, y)),
}
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_not")

EVALUATIONS: dict[str, Evaluation] = {
    **{f"aten.{name}.{kind}": c for name, c in COMPARISONS.items() for kind in ("Tensor", "Scalar")},
    **{f"prims.{name}.default": comparison for name, comparison in COMPARISONS.items()},
    **{f"aten.{name}.default": logic for name in _LOGIC},
    **dict.fromkeys(("aten.bitwise_and.Tensor", "aten.bitwise_or.Tensor", "aten.bitwise_xor.Tensor"), logic),
    **dict.fromkeys(("aten.isnan.default", "aten.isinf.default", "aten.isfinite.default"), classified),
    "prims.isfinite.default": classified,
    **{f"aten.where.{kind}": where for kind in ("self", "ScalarSelf", "ScalarOther", "Scalar")},
    "prims.where.default": where,
    **{f"aten.masked_fill.{kind}": masked_fill for kind in ("Scalar", "Tensor")},
    "aten.threshold_backward.default": threshold_backward,
    "aten.softshrink_backward.default": shrink_backward,
    "aten.hardshrink_backward.default": shrink_backward,
    **{f"aten.clamp{side}.{kind}": clamp for side in ("", "_min") for kind in ("default", "Tensor")},
    **{f"aten.clamp_max.{kind}": clamp_max for kind in ("default", "Tensor")},
}
