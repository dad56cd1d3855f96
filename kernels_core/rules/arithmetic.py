"""Addition, multiplication, division and negation.

With a, b exact values, A, B the bounds of the operands (|a' - a| <= A for every legal a'):

    |(a' + b') - (a + b)| <= A + B
    |a' b' - a b|         <= |a| B + A (|b| + B)
    |a' / b' - a / b|     <= (A + |a/b| B) / (|b| - B)       for B < |b|, else unbounded

then the rounding of the operation. Derivation of the quotient: a'/b' - a/b = ((a' - a) - (a/b)(b' - b)) / b'.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import DISCRETE, INFLATE, Local
from kernels_core.formats import format_of
from kernels_core.rules.cones import broadcast_cone, elementwise, elementwise_tiles
from kernels_core.rules.operands import (
    as_tensor,
    constant_rounding,
    integral,
    is_integral,
    parts,
    plus,
)
from kernels_core.rules.record import Family, Rule


@functools.lru_cache(maxsize=4096)
def add(local: Local, a: Any, b: Any, *, alpha: float = 1, sign: float = 1.0) -> Enclosure:
    """A + alpha b."""
    if is_integral(local):
        return integral(local, a, b, alpha=alpha)
    (x, x_bound), (y, y_bound) = parts(a), parts(b)
    factor = sign * float(alpha)
    if factor != 1.0:
        y = y * factor
    bound = plus(x_bound, None if y_bound is None else y_bound * abs(factor) if factor not in (1.0, -1.0) else y_bound)
    bound = plus(bound, constant_rounding(local, a, stored=True))
    bound = plus(bound, abs(factor) * constant_rounding(local, b, stored=True))
    if factor not in (1.0, -1.0):  # alpha b may be rounded before the addition, and alpha too
        own = constant_rounding(local, factor, stored=True) / abs(factor) if factor else 0.0
        bound = plus(bound, _magnitude(y) * (local.factor() + own * (1 + local.factor())) + local.eta)
    mid = x + y
    return local.rounded(mid, as_tensor(bound, mid), subnormal=factor not in (1.0, -1.0) or not _same_format(local))


def _same_format(local: Local) -> bool:
    """Return True where both operands have the result's format: their sum is a multiple of eta, no underflow."""
    metas = local.step.operand_metas
    return len(metas) == 2 and all(meta.dtype is local.nominal for meta in metas)


def subtract(local: Local, a: Any, b: Any, *, alpha: float = 1) -> Enclosure:
    """A - alpha b."""
    if is_integral(local):
        return integral(local, a, b, alpha=alpha)
    return add(local, a, b, alpha=alpha, sign=-1.0)


def subtract_reversed(local: Local, a: Any, b: Any, alpha: float = 1) -> Enclosure:
    """B - alpha a."""
    return integral(local, a, b, alpha=alpha) if is_integral(local) else add(local, b, a, alpha=alpha, sign=-1.0)


def multiply(local: Local, a: Any, b: Any) -> Enclosure:
    """A b; x * x is one value, with (|x| + X)^2 - x^2 = X (2 |x| + X)."""
    if is_integral(local):
        return integral(local, a, b)
    (x, x_bound), (y, y_bound) = parts(a), parts(b)
    if isinstance(y, float) and isinstance(x, torch.Tensor) and abs(y) >= 1 and math.frexp(abs(y))[0] == 0.5:
        return Enclosure(x * y, None if x_bound is None else x_bound * abs(y))  # a power of two scales exactly
    bound = _product_bound(local, x, x_bound, y, y_bound)
    for rounding, (other, reach) in (
        (constant_rounding(local, b), (x, x_bound)),
        (constant_rounding(local, a), (y, y_bound)),
    ):
        if rounding:
            bound = plus(bound, rounding * _upper(other, reach))
    mid = x * y
    return exact_zeros(local, local.rounded(mid, as_tensor(bound, mid), own=True), (x, x_bound), (y, y_bound))


def exact_zeros(local: Local, value: Enclosure, *factors: tuple[Any, Any]) -> Enclosure:
    """Return the product with bound 0 where a factor is exactly zero and the others finite: nothing is rounded."""
    bound = value.bound_or_zero()
    if not bound.numel() or float(bound.amin()) > local.eta:  # a rounded zero grants just eta
        return value
    zero = value.mid == 0
    exact = torch.zeros_like(zero)
    for factor, reach in factors:
        exact = exact | (torch.as_tensor(factor == 0) if reach is None else (factor == 0) & (reach == 0))
    return Enclosure(value.mid, torch.where(zero & exact & bound.isfinite(), 0.0, bound))


def _product_bound(local: Local, x: Any, x_bound: Any, y: Any, y_bound: Any) -> Any:
    """Return |x| Y + X (|y| + Y) in memory of its own, None for none."""
    if x_bound is None or y_bound is None:
        if y_bound is not None:
            x, y, x_bound = y, x, y_bound
        return None if x_bound is None else x_bound * (local.magnitude(y) if isinstance(y, torch.Tensor) else abs(y))
    if x.numel() < y.numel():
        x, x_bound, y, y_bound = y, y_bound, x, x_bound
    bound = (_magnitude(x) + x_bound) if x_bound.shape != x.shape else _magnitude(x).add_(x_bound)
    bound = bound.mul_(y_bound) if _fits(y_bound.shape, bound.shape) else bound * y_bound
    other = local.magnitude(y)
    if _fits(x_bound.shape, bound.shape) and _fits(other.shape, bound.shape):
        return bound.addcmul_(x_bound, other)
    return torch.addcmul(bound, x_bound, other)


def _fits(shape: torch.Size, into: torch.Size) -> bool:
    """Return True where a tensor of this shape broadcasts into the other without enlarging it."""
    if shape == into:
        return True
    lead = len(into) - len(shape)
    return lead >= 0 and all(a in (1, b) for a, b in zip(shape, into[lead:], strict=True))


def _magnitude(x: Any) -> Any:
    return x.abs() if isinstance(x, torch.Tensor) else abs(x)


def _upper(x: Any, bound: Any) -> Any:
    return _magnitude(x) if bound is None else _magnitude(x) + bound


def divide(local: Local, a: Any, b: Any, *, rounding_mode: str | None = None) -> Enclosure:
    """A / b; with a rounding mode the quotient is rounded to an integer, which may step by one."""
    if is_integral(local):
        return integral(local, a, b, rounding_mode=rounding_mode)
    (x, x_bound), (y, y_bound) = parts(a), parts(b)
    y_bound = plus(y_bound, constant_rounding(local, b))
    x_bound = plus(x_bound, constant_rounding(local, a))
    mid = x / y
    bound = quotient_bound(mid, x_bound, y, y_bound)
    if rounding_mode is None:
        ulp = local.ulp("division") if not local.arithmetic.float64 else 0.0
        return exact_zeros(local, local.rounded(mid, as_tensor(bound, mid), ulp), (x, x_bound))
    return stepped(
        local, local.rounded(mid, as_tensor(bound, mid)), torch.floor if rounding_mode == "floor" else torch.trunc
    )


def quotient_bound(quotient: torch.Tensor, x_bound: Any, y: Any, y_bound: Any) -> Any:
    """Return the propagated bound of x / y (see the module)."""
    if x_bound is None and y_bound is None:
        return None
    if y_bound is None:
        return x_bound / _magnitude(y)
    room = _magnitude(y) - y_bound
    room = room * (1 - 2.0**-50) if isinstance(room, torch.Tensor) else room
    top = plus(x_bound, quotient.abs() * y_bound)
    bound = top / room
    return torch.where(torch.as_tensor(room > 0), bound, torch.inf)


def stepped(local: Local, value: Enclosure, step: Any) -> Enclosure:
    """Apply a step function (floor, ceil, trunc, round): exact where both ends of the enclosure agree."""
    mid = step(value.mid)
    if value.bound is None:
        return Enclosure(mid)
    reach = value.bound * DISCRETE
    low, high = step(value.mid - reach), step(value.mid + reach)
    bound = torch.maximum((high - mid).abs(), (mid - low).abs())
    if bool((bound > 0).any()):
        local.lose_rad()
    return Enclosure(mid, torch.where(bound.isnan(), torch.where(value.bound == 0, 0.0, torch.inf), bound))


def factored(local: Local, a: Enclosure, *, compute: torch.dtype, roundings: int = 1) -> Enclosure:
    """A gradient with one more rounding of its compute format for each upstream gradient taken out as a factor.

    PyTorch's formula distributes it, g t_1 + g t_2 + ..., where a kernel may form g (t_1 + t_2 + ...). With the same
    errors in the t_i the latter errs by (n - 1) u sum |g t_i| for its additions, as the former, and by u |g sum t_i|
    for the one product; the former by u |g t_i| for each product, but by nothing where t_i is a constant such
    as the 1 of a cross entropy's p - 1. So one rounding u |result| on top covers both. A tangent is linear in the
    tangents in the same way; a gradient of second order in both upstream gradients, g and v, which may each be taken
    out: two roundings.

    Where the bound is 0, g was only moved, or met 1, -1, 0 and other powers of two alone: so is their sum, and g
    times it is exact as well.
    """
    if local.arithmetic.float64 or a.bound is None:
        return a
    own = format_of(compute).unit_roundoff
    unit = roundings * own * (1 + roundings * own)  # (1 + u)^n - 1 <= n u (1 + n u) for n u <= 1
    grown = (1 + unit) * INFLATE
    bound = torch.add(a.bound, local.magnitude(a.mid), alpha=unit / (1 + unit)).mul_(grown)
    if bound.numel() and float(a.bound.amin()) == 0:
        bound = torch.where(a.bound == 0, 0.0, bound)
    return Enclosure(a.mid, bound if all_finite(bound) else torch.where(a.mid.isfinite(), bound, a.bound))


def regrouped(local: Local, a: Enclosure, roundings: int) -> Enclosure:
    """The same value with roundings of its own format that kernels make on its way (tracing/complex_functions.py).

    Where the bound is 0 its operands are powers of two and zeros, which no way of writing it rounds.
    """
    return factored(local, a, compute=local.nominal, roundings=roundings)


def negate(local: Local, a: Enclosure) -> Enclosure:
    """-a, exact."""
    return Enclosure(-a.mid, a.bound, a.unsure)


def reciprocal(local: Local, a: Enclosure) -> Enclosure:
    """1 / a."""
    return divide(local, 1.0, a)


def _exact_add(n: Numbers, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return a + b * alpha


def _exact_subtract(n: Numbers, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return a - b * alpha


def _exact_divide(n: Numbers, a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    quotient = n.divide(a, b)
    if rounding_mode is None:
        return quotient
    return n.each(n.floor if rounding_mode == "floor" else n.trunc, quotient)


FAMILY = Family()
FAMILY.add(
    Rule(
        "exactref.regrouped.default", regrouped, broadcast_cone, lambda call, a, *_: a, elementwise_tiles, classed=True
    ),
    Rule("exactref.factored", factored, broadcast_cone, lambda call, a: a, elementwise_tiles, classed=True),
    elementwise("add.Tensor", add, _exact_add, keeps_inf=True),
    elementwise("add.Scalar", lambda local, a, b, alpha=1: add(local, a, b, alpha=alpha), _exact_add, keeps_inf=True),
    elementwise("sub.Tensor", subtract, _exact_subtract, keeps_inf=True),
    elementwise(
        "sub.Scalar", lambda local, a, b, alpha=1: subtract(local, a, b, alpha=alpha), _exact_subtract, keeps_inf=True
    ),
    elementwise("rsub.Scalar", subtract_reversed, lambda n, a, b, alpha=1: b - a * alpha, keeps_inf=True),
    elementwise(
        "rsub.Tensor",
        lambda local, a, b, *, alpha=1: subtract_reversed(local, a, b, alpha),
        lambda n, a, b, *, alpha=1: b - a * alpha,
        keeps_inf=True,
    ),
    elementwise("mul.Tensor", multiply, lambda n, a, b: a * b, scales_inf=True),
    elementwise("mul.Scalar", multiply, lambda n, a, b: a * b, scales_inf=True),
    elementwise("div.Tensor", divide, _exact_divide, poles=True),
    elementwise("div.Scalar", divide, _exact_divide, poles=True),
    elementwise("div.Tensor_mode", divide, _exact_divide, poles=True),
    elementwise("div.Scalar_mode", divide, _exact_divide, poles=True),
    elementwise("neg.default", negate, lambda n, a: -a),
    elementwise("reciprocal.default", reciprocal, lambda n, a: n.divide(1, a), poles=True),
)
