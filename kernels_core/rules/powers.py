"""Powers: square roots, their inverses, and x^p for numbers and tensors."""

from __future__ import annotations

from typing import Any

import flint
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import DISCRETE, Local
from kernels_core.rules.arithmetic import exact_zeros
from kernels_core.rules.cones import elementwise
from kernels_core.rules.operands import constant_rounding, integral, parts, plus
from kernels_core.rules.record import Family
from kernels_core.rules.slopes import OWN, exact_at_zero, undefined

Tensor = torch.Tensor


def root(local: Local, a: Enclosure) -> Enclosure:
    """sqrt(x): sqrt(x) - sqrt(x - X) = X / (sqrt(x) + sqrt(x - X)).

    Where the enclosure reaches below zero, a kernel may get NaN and nothing is known. Underflow is the exception:
    rounding to nearest never crosses zero, so a bound of the size of a few smallest normal numbers, which only
    underflow grants, comes with non-negative values, and sqrt(x + X) bounds both sides. That is not star-shaped.
    """
    x, reach = parts(a)
    y = torch.sqrt(x)
    if reach is None:
        return exact_at_zero(local.rounded(y, None, local.ulp("sqrt"), subnormal=False), x, None)
    certain, reach = reach, reach * OWN
    moved = reach / (y + torch.sqrt((x - reach).clamp(min=0)))
    outside = (x <= reach) & (reach > 0)
    if bool(outside.any()):
        local.lose_rad()
        underflow = (x >= 0) & (reach <= local.smallest_normal * 2.0**20)
        moved = torch.where(outside, torch.where(underflow, torch.sqrt(x + reach), torch.inf), moved)
    value = local.rounded(y, torch.where(reach == 0, 0.0, moved * OWN), local.ulp("sqrt"), subnormal=False)
    return exact_at_zero(undefined(value, x + reach < 0), x, certain)


def inverse_root(local: Local, a: Enclosure) -> Enclosure:
    """x^(-1/2), convex and decreasing, steeper on the left: (x - X)^(-1/2) - x^(-1/2) <= X (x - X)^(-3/2) / 2."""
    x, reach = parts(a)
    y = torch.rsqrt(x)
    if reach is None:
        return local.rounded(y, None, local.ulp("rsqrt"))
    low = (x - reach * OWN) * (1 - 2.0**-50)
    steep = torch.rsqrt(low)
    moved = torch.where(low > 0, steep * steep * steep * reach * (0.5 * OWN), torch.inf)
    return undefined(local.rounded(y, torch.where(reach == 0, 0.0, moved), local.ulp("rsqrt")), x + reach < 0)


def power(local: Local, a: Any, exponent: Any) -> Enclosure:
    """x^p. For a number p: 0, 1, 2, 3, -1, 1/2, -1/2 by their own forms (a kernel may multiply), else by the slope."""
    if not local.nominal.is_floating_point:
        return integral(local, a, exponent)
    if isinstance(exponent, Enclosure) or not isinstance(a, Enclosure):
        return _power_of_tensor(local, a, exponent)
    x, reach = parts(a)
    p = float(exponent)
    if constant_rounding(local, p, stored=True):
        return _power_of_tensor(local, a, exponent)
    if p == 1 and reach is not None:
        return Enclosure(x, reach)
    y = x * x if p == 2 else torch.pow(x, p)
    ulp = _power_ulp(local, p)
    if reach is None:
        return exact_at_zero(local.rounded(y, None, ulp), x, None) if p > 0 else local.rounded(y, None, ulp)
    if p == 0:
        return Enclosure(y, torch.zeros_like(y))
    if p == 2:  # (|x| + X)^2 - x^2 = X (2 |x| + X)
        moved = x.abs().mul_(2).add_(reach).mul_(reach)
        return exact_zeros(local, local.rounded(y, moved, ulp), (x, reach))
    if p >= 1:  # |f'| grows with |x|
        moved = abs(p) * torch.pow(x.abs() + reach * OWN, p - 1) * reach * OWN
        if p != int(p):  # NaN for a negative number, see `root`
            crossing = (x < reach) & ~((x >= 0) & (reach <= local.smallest_normal * 2.0**20))
            moved = torch.where(crossing, torch.inf, moved)
    else:
        low = (x.abs() - reach * OWN) * (1 - 2.0**-50)
        moved = torch.where(low > 0, abs(p) * torch.pow(low, p - 1) * reach * OWN, torch.inf)
    value = local.rounded(y, torch.where(reach == 0, 0.0, moved), ulp)
    return exact_at_zero(value, x, reach) if p > 0 else value


def _power_ulp(local: Local, p: float) -> float:
    """Return the accuracy of x^p: one operation where it is one, else repeated multiplication or the library's pow."""
    if p in (0.0, 1.0, 2.0, -1.0):
        return 0.0
    if p in (0.5, -0.5):
        return local.ulp("sqrt" if p > 0 else "rsqrt")
    return max(local.ulp("pow"), abs(p) if p == int(p) and abs(p) < 64 else 0.0)


def _power_of_tensor(local: Local, a: Any, b: Any) -> Enclosure:
    """x^p = exp(p ln x), x > 0: relative change of the value exp(|p'| L + |ln x| P + L P) - 1, L the change of ln x."""
    (x, x_bound), (p, p_bound) = parts(a), parts(b)
    y = torch.pow(x, p)
    x_bound = plus(x_bound, constant_rounding(local, a, stored=True))
    p_bound = plus(p_bound, constant_rounding(local, b, stored=True))
    if x_bound is None and p_bound is None:
        return local.rounded(y, None, local.ulp("pow"))
    zero = torch.zeros_like(y)
    x = torch.as_tensor(x, dtype=torch.float64, device=y.device)
    p = torch.as_tensor(p, dtype=torch.float64, device=y.device)
    x_bound, p_bound = (zero if bound is None else zero + bound for bound in (x_bound, p_bound))
    share = x_bound / x.abs() * OWN
    moved_log = torch.where(share < 1, -torch.log1p(-share), torch.inf)
    log = torch.log(x.abs()).abs()
    change = p.abs() * moved_log + log * p_bound + torch.where(p_bound == 0, 0.0, moved_log * p_bound)
    moved = y.abs() * torch.expm1(change * OWN) * OWN
    settled = (x_bound == 0) & ((p_bound == 0) | (x == 0) & (p - p_bound > 0))
    moved = torch.where((p_bound > 0) & (x < 0), torch.inf, moved)
    value = local.rounded(y, torch.where(settled, 0.0, moved), local.ulp("pow"))
    fraction = p - p.floor()  # a negative number to any power in reach that is no integer is NaN for certain
    undefined = (x + x_bound < 0) & (fraction > p_bound * DISCRETE) & (fraction + p_bound * DISCRETE < 1)
    return Enclosure(y, torch.where(undefined, 0.0, value.bound_or_zero()))


def _exact_power(n: Numbers, a: Any, p: Any) -> Any:
    def one(x: Any, q: Any) -> Any:
        whole = int(q.p) if hasattr(q, "q") and q.q == 1 else q if isinstance(q, int) else None
        if whole is None and isinstance(q, flint.arb):
            found = q.unique_fmpz() if q.is_exact() else None
            whole = None if found is None else int(found)
        x = n.real(x)
        if whole is not None and abs(whole) < 4096:
            return x**whole if whole >= 0 else n.divide(1, x**-whole)
        return n.ball(lambda u, v: u**v, x, q)

    return n.each(one, a, p)


FAMILY = Family()
FAMILY.add(
    elementwise("sqrt.default", root, lambda n, a: n.sqrt(a)),
    elementwise("rsqrt.default", inverse_root, lambda n, a: n.divide(1, n.sqrt(a)), poles=True),
    elementwise("pow.Tensor_Scalar", power, _exact_power, poles=True),
    elementwise("pow.Tensor_Tensor", power, _exact_power, poles=True),
    elementwise("pow.Scalar", power, _exact_power, poles=True),
    elementwise("square.default", lambda local, a: power(local, a, 2), lambda n, a: a * a),
)
