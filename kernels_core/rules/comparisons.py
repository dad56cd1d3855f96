"""Comparisons and logic: three-valued. A comparison is unsure where the enclosures of both sides meet.

Legal values lie in [a - A, a + A] and [b - B, b + B], so a < b is certain where |a - b| > A + B. Two exact values that
tie follow PyTorch's convention; the tie is counted, and in the run at kinks (`local.kinks`) an order is left unsure
there, so that a gradient becomes the hull of both sides. Equality is left unsure in derivative formulas only, where
PyTorch uses it to share a gradient between tied elements.

What a derivative is at NaN no convention says: one kernel of PyTorch passes the upstream gradient, its vectorised twin
gives NaN, a mask gives zero. The run at NaN (`local.arithmetic.at_nan`), of which gradients alone are taken, leaves
such an order unsure; where that changes a gradient, NaN is admitted as well (result.py). It is a run apart from that at
kinks, where a tie beside 0 / 0 has no bound either, which excuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import DISCRETE, Local
from kernels_core.program import replace_refs
from kernels_core.rules.cones import broadcast_cone, elementwise, elementwise_tiles
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family, Rule

Compare = Callable[[Any, Any], torch.Tensor]


def _order(compare: Compare) -> Callable[..., Enclosure]:
    def bound(local: Local, a: Any, b: Any) -> Enclosure:
        return compared(local, compare, a, b, kinked=True)

    return bound


def _equality(compare: Compare) -> Callable[..., Enclosure]:
    def bound(local: Local, a: Any, b: Any) -> Enclosure:
        return compared(local, compare, a, b, kinked=local.step.backward)

    return bound


def compared(local: Local, compare: Compare, a: Any, b: Any, *, kinked: bool) -> Enclosure:
    """Return a comparison of two operands (tensors or numbers), unsure where their enclosures meet."""
    first, second = _exact_side(a), _exact_side(b)
    value = compare(first, second)
    if len(local.step.operands) == 2 and local.step.operands[0] == local.step.operands[1]:  # a test for NaN
        return Enclosure(value, None, None if not _floating(a) or a.bound is None else a.bound.isinf())
    if not _floating(a) and not _floating(b):
        return Enclosure(value, None, _either(a, b, value))
    (x, x_bound), (y, y_bound) = parts(a), parts(b)
    reach = _reach(_side_bound(local, a, x_bound), _side_bound(local, b, y_bound))
    unsure = _either(a, b, value)
    if kinked or reach is not None:
        gap = torch.as_tensor(x - y)
        if reach is not None:
            unsure = _together(unsure, ~(gap.abs() > reach) & (reach > 0))
        if kinked:
            unsure = _together(unsure, _left_open(local, x, y, gap, reach))
    return Enclosure(value, None, None if unsure is None else unsure.expand(value.shape))


def _together(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first | second


def _left_open(local: Local, x: Any, y: Any, gap: torch.Tensor, reach: torch.Tensor | None) -> torch.Tensor | None:
    """Count ties and orders of NaN; return those that this run leaves unsure."""
    tie = gap == 0  # two infinities are no tie
    tie = tie if reach is None else tie & (reach == 0)
    local.arithmetic.ties += int(torch.count_nonzero(tie))
    if bool(gap.isnan().any()):  # also of infinities of the same sign, which are in order
        missing = torch.as_tensor(x).isnan() | torch.as_tensor(y).isnan()
        local.arithmetic.orders_of_nan += int(torch.count_nonzero(missing))
        if local.arithmetic.at_nan:
            return missing
    return tie if local.kinks else None


def _side_bound(local: Local, side: Any, bound: torch.Tensor | None) -> torch.Tensor | None:
    """Return the bound of a side; a number that the other side's format cannot hold is compared rounded to it."""
    if isinstance(side, Enclosure) or local.arithmetic.float64:
        return bound
    dtype = local.step.operand_metas[0].dtype
    number = torch.tensor(float(side), dtype=torch.float64)
    error = (number.to(torch.float32).to(dtype).to(torch.float64) - number).abs()
    return error * DISCRETE if bool(error > 0) and bool(error.isfinite()) and dtype.is_floating_point else None


def _floating(value: Any) -> bool:
    return isinstance(value, Enclosure) and value.floating


def _exact_side(value: Any) -> Any:
    return value.mid if isinstance(value, Enclosure) else value


def _reach(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    if first is None or second is None:
        alone = second if first is None else first
        return None if alone is None else alone * DISCRETE
    return (first + second) * DISCRETE


def _either(a: Any, b: Any, value: torch.Tensor) -> torch.Tensor | None:
    unsure = None
    for side in (a, b):
        if isinstance(side, Enclosure):
            unsure = _together(unsure, side.unsure)
    return None if unsure is None else unsure.expand(value.shape)


def logic(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
    """Run a logical or bitwise operation on certain values; a result is unsure where an operand that matters is."""
    mids = [_exact_side(a) for a in args]
    mid = local.step.op(*mids, **kwargs)  # type: ignore[misc]
    loose = [
        a for a in args if isinstance(a, Enclosure) and (a.unsure is not None or (a.floating and a.bound is not None))
    ]
    if not loose:
        return Enclosure(mid)
    unsure = torch.zeros(mid.shape, dtype=torch.bool, device=mid.device)
    for operand in loose:
        unsure = unsure | may_flip(operand)
    for operand in args:  # a certain False decides an "and", a certain True an "or"
        if (
            isinstance(operand, Enclosure)
            and not operand.floating
            and operand.mid.dtype is torch.bool
            and len(args) == 2
        ):
            deciding = {"and": ~operand.mid, "or": operand.mid}.get(_junction(local.step.name))
            if deciding is not None:
                unsure = unsure & ~(deciding if operand.unsure is None else deciding & ~operand.unsure)
    return Enclosure(mid, None, unsure)


def may_flip(operand: Enclosure) -> torch.Tensor:
    """Return True where the truth of an operand is not certain."""
    if not operand.floating:
        return operand.unsure if operand.unsure is not None else torch.zeros_like(operand.mid, dtype=torch.bool)
    bound = operand.bound_or_zero()
    return (bound > 0) & (operand.mid.abs() <= bound * DISCRETE)


def _junction(name: str) -> str:
    base = name.split(".")[1]
    return {"logical_and": "and", "bitwise_and": "and", "__and__": "and", "logical_or": "or", "bitwise_or": "or",
            "__or__": "or"}.get(base, "")  # fmt: skip


def classified(local: Local, a: Enclosure) -> Enclosure:
    """isnan, isinf, isfinite, isposinf, isneginf, signbit: unsure where the bound is infinite."""
    mid = local.step.op(a.mid)  # type: ignore[misc]
    return Enclosure(mid, None, None if a.bound is None else a.bound.isinf())


def _pairs(function: Callable[[Numbers, Any, Any], bool]) -> Any:
    return lambda n, a, b: n.each(lambda x, y: function(n, n.real(x), n.real(y)), a, b)


def _truth(n: Numbers, value: Any) -> bool:
    return value if isinstance(value, bool) else not n.equal(n.real(value), n.real(0))


def _truths(function: Callable[[bool, bool], bool]) -> Any:
    return lambda n, a, b: n.each(lambda x, y: function(_truth(n, x), _truth(n, y)), a, b)


_less = _pairs(lambda n, x, y: n.less(x, y))
_greater = _pairs(lambda n, x, y: n.less(y, x))
_at_most = _pairs(lambda n, x, y: n.less(x, y) or n.equal(x, y))
_at_least = _pairs(lambda n, x, y: n.less(y, x) or n.equal(x, y))
_equal = _pairs(lambda n, x, y: n.equal(x, y))
_unequal = _pairs(lambda n, x, y: not n.equal(x, y))
_and = _truths(lambda x, y: x and y)
_or = _truths(lambda x, y: x or y)
_xor = _truths(lambda x, y: x != y)


def _by_torch(call: Any, *operands: Any) -> Any:
    """Integers are exact in PyTorch's own operation, which drops the bits beyond the dtype."""
    given = iter(zip(operands, call.step.operand_metas, strict=True))

    def tensor(_: Any) -> torch.Tensor:
        values, meta = next(given)
        return torch.tensor([int(v) for v in values], dtype=meta.dtype)

    return np.array(call.step.op(*replace_refs(call.step.args, tensor)).tolist(), dtype=object)


def _shift(name: str) -> Rule:
    return Rule(f"aten.{name}", logic, broadcast_cone, _by_torch, elementwise_tiles)


def _bits(function: Callable[[Any, Any], Any]) -> Any:
    return lambda n, a, b: n.each(function, a, b)


FAMILY = Family()
FAMILY.add(
    elementwise("lt.Tensor", _order(torch.lt), _less),
    elementwise("lt.Scalar", _order(torch.lt), _less),
    elementwise("gt.Tensor", _order(torch.gt), _greater),
    elementwise("gt.Scalar", _order(torch.gt), _greater),
    elementwise("le.Tensor", _order(torch.le), _at_most),
    elementwise("le.Scalar", _order(torch.le), _at_most),
    elementwise("ge.Tensor", _order(torch.ge), _at_least),
    elementwise("ge.Scalar", _order(torch.ge), _at_least),
    elementwise("eq.Tensor", _equality(torch.eq), _equal),
    elementwise("eq.Scalar", _equality(torch.eq), _equal),
    elementwise("ne.Tensor", _equality(torch.ne), _unequal),
    elementwise("ne.Scalar", _equality(torch.ne), _unequal),
    elementwise("logical_and.default", logic, _and),
    elementwise("logical_or.default", logic, _or),
    elementwise("logical_xor.default", logic, _xor),
    elementwise("logical_not.default", logic, lambda n, a: n.each(lambda x: not _truth(n, x), a)),
    elementwise("bitwise_and.Tensor", logic, _bits(lambda x, y: x & y)),
    elementwise("bitwise_and.Scalar", logic, _bits(lambda x, y: x & y)),
    elementwise("bitwise_or.Tensor", logic, _bits(lambda x, y: x | y)),
    elementwise("bitwise_or.Scalar", logic, _bits(lambda x, y: x | y)),
    elementwise("bitwise_xor.Tensor", logic, _bits(lambda x, y: x ^ y)),
    elementwise("bitwise_xor.Scalar", logic, _bits(lambda x, y: x ^ y)),
    elementwise("bitwise_not.default", logic, lambda n, a: n.each(lambda x: not x if isinstance(x, bool) else ~x, a)),
    *(_shift(f"__{way}shift__.{kind}") for way in ("l", "r") for kind in ("Scalar", "Tensor")),
    *(_shift(f"bitwise_{way}_shift.{kind}") for way in ("left", "right") for kind in ("Tensor_Scalar", "Tensor")),
    elementwise("isnan.default", classified, lambda n, a: n.each(lambda x: n.kind(x) == "nan", a)),
    elementwise("isinf.default", classified, lambda n, a: n.each(lambda x: n.kind(x) == "infinite", a)),
    elementwise("isfinite.default", classified, lambda n, a: n.each(lambda x: n.kind(x) == "finite", a)),
)
