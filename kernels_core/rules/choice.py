"""Choosing, clamping and the kinked functions: abs, sign, relu, maximum, minimum, rounding to integers.

A choice between two values that is unsure takes the hull of both. Maximum and minimum are 1-Lipschitz in each operand,
and round nothing: |max(a', b') - max(a, b)| is at most the larger of what can rise above and fall below the maximum,
max(a + A, b + B) - m and m - max(a - A, b - B). Both are at most max(A, B), and star-shaped because max is convex and
1-homogeneous around the float64 maximum.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.enclosure import Enclosure, all_finite, hull
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import DISCRETE, INFLATE, Local
from kernels_core.rules.arithmetic import divide, multiply, stepped
from kernels_core.rules.cones import elementwise
from kernels_core.rules.operands import constant_rounding, integral, is_integral, parts
from kernels_core.rules.record import Family, Rule


def as_enclosure(local: Local, value: Any, like: torch.Tensor) -> Enclosure:
    """Return an operand as an enclosure of the result's kind; a Python number carries its constant rounding."""
    if isinstance(value, Enclosure):
        if value.floating or is_integral(local):
            return value
        return Enclosure(*parts(value))
    if is_integral(local):
        return Enclosure(torch.full((), value, dtype=local.nominal, device=like.device))
    rounding = constant_rounding(local, value, stored=True)
    mid = torch.full((), float(value), dtype=torch.float64, device=like.device)
    return Enclosure(mid, torch.full_like(mid, rounding) if rounding else None)


def where(local: Local, condition: Enclosure, a: Any, b: Any) -> Enclosure:
    """A where the condition holds, else b."""
    first, second = as_enclosure(local, a, condition.mid), as_enclosure(local, b, condition.mid)
    chosen = hull(_boolean(condition), first, second, centred=local.leaves_open)
    if is_integral(local):
        return Enclosure(chosen.mid.to(local.nominal), None, chosen.unsure)
    return chosen


def _boolean(condition: Enclosure) -> Enclosure:
    return condition if condition.mid.dtype is torch.bool else Enclosure(condition.mid != 0, None, condition.unsure)


def masked_fill(local: Local, a: Enclosure, mask: Enclosure, value: Any) -> Enclosure:
    """Value where the mask holds, else a."""
    return where(local, mask, value, a)


def absolute(local: Local, a: Enclosure) -> Enclosure:
    """|a|: 1-Lipschitz, exact."""
    return integral(local, a) if is_integral(local) else Enclosure(a.mid.abs(), a.bound)


def sign(local: Local, a: Enclosure) -> Enclosure:
    """Sign of a; between its values where the enclosure contains zero. At a certain zero: 0, at kinks [-1, 1]."""
    if is_integral(local):
        return integral(local, a)
    mid = a.mid.sign()
    zero = a.mid == 0 if a.bound is None else (a.mid == 0) & (a.bound == 0)
    bound = None
    if a.bound is not None:
        reach = a.bound * DISCRETE
        near = ~(a.mid.abs() > reach) & (reach > 0)  # also where nothing is known: NaN compares false
        if bool(near.any()):
            local.lose_rad()
        bound = torch.where(near, 1 + mid.abs(), 0.0)
    if local.kinks:
        return Enclosure(mid, torch.where(zero, 1.0, torch.zeros_like(mid) if bound is None else bound))
    local.arithmetic.ties += int(zero.sum())
    return Enclosure(mid, bound)


def relu(local: Local, a: Enclosure) -> Enclosure:
    """max(a, 0)."""
    return integral(local, a) if is_integral(local) else extreme(local, torch.maximum, a, 0.0)


def extreme(local: Local, choose: Any, a: Any, b: Any) -> Enclosure:
    """Maximum or minimum of two operands (see the module)."""
    like = next(v.mid for v in (a, b) if isinstance(v, Enclosure))
    first, second = as_enclosure(local, a, like), as_enclosure(local, b, like)
    mid = choose(first.mid, second.mid)
    if not mid.is_floating_point():
        loose = [v.unsure for v in (first, second) if v.unsure is not None]
        unsure = None if not loose else loose[0] if len(loose) == 1 else loose[0] | loose[1]
        return Enclosure(mid, None, None if unsure is None else unsure.expand(mid.shape))
    if first.bound is None and second.bound is None:
        return Enclosure(mid)
    rooms = [_room(v, mid) for v in (first, second)]
    bound = torch.maximum(*rooms).clamp_(min=0)
    # an infinity or NaN is as certain as an operand that is that infinity or NaN, else nothing is known
    classes = [torch.where((v.mid == mid) | v.mid.isnan(), v.bound_or_zero(), torch.inf) for v in (first, second)]
    return Enclosure(mid, torch.where(mid.isfinite(), bound, torch.minimum(*classes)))


def _room(value: Enclosure, mid: torch.Tensor) -> torch.Tensor:
    """Return how far beyond the extremum this operand reaches, and how far the extremum falls where it is this one."""
    distance = torch.where(value.mid == mid, 0.0, (mid - value.mid).abs())
    return value.bound_or_zero() * INFLATE - distance


def clamp(local: Local, a: Enclosure, low: Any = None, high: Any = None) -> Enclosure:
    """min(max(a, low), high)."""
    if is_integral(local):
        return integral(local, a, low, high)
    value = Enclosure(*parts(a))
    if low is not None:
        value = extreme(local, torch.maximum, value, low)
    return value if high is None else extreme(local, torch.minimum, value, high)


def clamp_min(local: Local, a: Enclosure, low: Any) -> Enclosure:
    """max(a, low)."""
    return integral(local, a, low) if is_integral(local) else clamp(local, a, low)


def clamp_max(local: Local, a: Enclosure, high: Any) -> Enclosure:
    """min(a, high)."""
    return integral(local, a, high) if is_integral(local) else clamp(local, a, None, high)


def _ignoring_nan(choose: Any, other: Any) -> Any:
    def bound(local: Local, a: Enclosure, b: Enclosure) -> Enclosure:
        plain = extreme(local, other, a, b)
        if not a.floating:
            return plain
        missing = [Enclosure(v.mid.isnan(), None, v.mid.isnan() & (v.bound_or_zero() != 0)) for v in (a, b)]
        return hull(missing[0], b, hull(missing[1], a, plain))

    return bound


def _maximum(local: Local, a: Any, b: Any) -> Enclosure:
    return extreme(local, torch.maximum, a, b)


def _minimum(local: Local, a: Any, b: Any) -> Enclosure:
    return extreme(local, torch.minimum, a, b)


def _stepping(function: Any) -> Any:
    def bound(local: Local, a: Enclosure) -> Enclosure:
        return integral(local, a) if is_integral(local) else stepped(local, a, function)

    return bound


def round_decimals(local: Local, a: Enclosure, *, decimals: int = 0) -> Enclosure:
    """round(a 10^d) / 10^d, for negative d round(a / 10^-d) 10^-d, as PyTorch does: ties to even."""
    if is_integral(local):
        return integral(local, a, decimals=decimals)
    ten = 10.0 ** abs(decimals)
    up, down = (multiply, divide) if decimals > 0 else (divide, multiply)
    return (
        down(local, stepped(local, up(local, a, ten), torch.round), ten) if decimals else stepped(local, a, torch.round)
    )


def _exact_decimals(n: Numbers, a: Any, *, decimals: int = 0) -> Any:
    ten = n.real(10) ** decimals
    return n.each(lambda x: n.real(_half_even(n, n.real(x) * ten)) / ten, a)


def lerp(local: Local, a: Enclosure, b: Enclosure, weight: Any) -> Enclosure:
    """A + weight (b - a), or b - (b - a)(1 - weight): three roundings of numbers up to |a| + |b| and their product."""
    (x, x_bound), (y, y_bound), (w, w_bound) = parts(a), parts(b), parts(weight)
    mid = x + w * (y - x)
    zero = torch.zeros_like(mid)
    x_bound, y_bound = zero if x_bound is None else x_bound, zero if y_bound is None else y_bound
    w_bound = zero if w_bound is None else w_bound
    w_abs = abs(w) if isinstance(w, float) else w.abs()
    spread = (y - x).abs() + x_bound + y_bound
    rest = 1 - w
    moved = abs(rest) * x_bound + (w_abs + w_bound) * y_bound + w_bound * (spread + x_bound)
    size = x.abs() + y.abs() + x_bound + y_bound + (1 + w_abs + w_bound) * spread
    bound = local.rounded(mid, (moved + 4 * local.u_acc * size + 4 * local.eta_acc) * INFLATE).bound_or_zero()
    if not all_finite(bound):  # NaN stays NaN; the two forms differ at infinities
        missing = [torch.as_tensor(v).isnan() & (e == 0) for v, e in ((x, x_bound), (y, y_bound), (w, w_bound))]
        bound = torch.where(mid.isfinite() & ~bound.isnan(), bound, torch.inf)
        bound = torch.where(missing[0] | missing[1] | missing[2], 0.0, bound)
        mid = torch.where(mid.isfinite() | (bound == 0), mid, torch.nan)
    return Enclosure(mid, bound)


def _exact_clamp(n: Numbers, a: Any, low: Any = None, high: Any = None) -> Any:
    value = n.each(n.real, a)
    if low is not None:
        value = n.each(lambda x, y: n.maximum(n.real(x), n.real(y)), value, low)
    return value if high is None else n.each(lambda x, y: n.minimum(n.real(x), n.real(y)), value, high)


def _exact_where(n: Numbers, condition: Any, a: Any, b: Any) -> Any:
    return n.each(lambda c, x, y: x if c else y, condition, a, b)


def _half_even(n: Numbers, value: Any) -> int:
    twice = n.real(value) * 2
    below = n.floor(value)
    order = n.sign(twice - (2 * below + 1))
    return below + (1 if order > 0 or (order == 0 and below % 2) else 0)


def _rule(name: str, bound: Any, exact: Any) -> Rule:
    return elementwise(name, bound, exact, classed=True)


_highest = lambda n, a, b: n.each(lambda x, y: n.maximum(n.real(x), n.real(y)), a, b)  # noqa: E731
_lowest = lambda n, a, b: n.each(lambda x, y: n.minimum(n.real(x), n.real(y)), a, b)  # noqa: E731
_sign = lambda n, a: n.each(lambda x: n.real(n.sign(n.real(x))), a)  # noqa: E731


def _to_integers(function: str) -> Any:
    return lambda n, a: n.each(lambda x: n.real(getattr(n, function)(x)), a)


FAMILY = Family()
FAMILY.add(
    _rule("where.self", where, _exact_where),
    _rule("where.ScalarSelf", where, _exact_where),
    _rule("where.ScalarOther", where, _exact_where),
    _rule("where.Scalar", where, _exact_where),
    _rule("masked_fill.Scalar", masked_fill, lambda n, a, mask, value: _exact_where(n, mask, value, a)),
    _rule("masked_fill.Tensor", masked_fill, lambda n, a, mask, value: _exact_where(n, mask, value, a)),
    _rule("abs.default", absolute, lambda n, a: n.each(abs, a)),
    _rule("sign.default", sign, _sign),
    _rule("sgn.default", sign, _sign),
    _rule("relu.default", relu, lambda n, a: _exact_clamp(n, a, n.of(0.0))),
    _rule("maximum.default", _maximum, _highest),
    _rule("minimum.default", _minimum, _lowest),
    _rule("fmax.default", _ignoring_nan("fmax", torch.maximum), _highest),
    _rule("fmin.default", _ignoring_nan("fmin", torch.minimum), _lowest),
    _rule("clamp.default", clamp, _exact_clamp),
    _rule("clamp.Tensor", clamp, _exact_clamp),
    _rule("clamp_min.default", clamp_min, _exact_clamp),
    _rule("clamp_min.Tensor", clamp_min, _exact_clamp),
    _rule("clamp_max.default", clamp_max, lambda n, a, high: _exact_clamp(n, a, None, high)),
    _rule("clamp_max.Tensor", clamp_max, lambda n, a, high: _exact_clamp(n, a, None, high)),
    _rule("floor.default", _stepping(torch.floor), _to_integers("floor")),
    _rule("ceil.default", _stepping(torch.ceil), _to_integers("ceil")),
    _rule("trunc.default", _stepping(torch.trunc), _to_integers("trunc")),
    _rule("round.default", _stepping(torch.round), lambda n, a: n.each(lambda x: n.real(_half_even(n, x)), a)),
    _rule("round.decimals", round_decimals, _exact_decimals),
    _rule("lerp.Scalar", lerp, lambda n, a, b, w: a + w * (b - a)),
    _rule("lerp.Tensor", lerp, lambda n, a, b, w: a + w * (b - a)),
)
