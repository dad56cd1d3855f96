"""Special functions: inverse error functions, gamma and its logarithmic derivatives, Bessel functions, normal tails.

The change over [x - X, x + X] is bounded by sup |f'| X, which is star-shaped. The float64 versions are less accurate
than the elementary functions, so the accuracy in `MEASURED` stands for both formats; where a function loses more near a
root or by a reflection, the derivation stands at its rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import flint
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.cones import elementwise
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family, Rule

Tensor = torch.Tensor
Slope = Callable[[Tensor, Tensor], Tensor]  # (low, high) -> upper bound of |f'| between them, inf allowed

_OWN = 1 + 2.0**-40  # the float64 error of a slope: a few functions of at most 50 ulp

# Ulp. Measured against FLINT at 300 bits on 400 points per range, float32 and float64, PyTorch 2.13 CPU, and doubled:
# erfinv 0.5 (two Newton steps), lgamma 0.8 for x > 0 (CUDA C++ Programming Guide: 6), i0 3.7, i0e 3.7, i1 11.6, i1e
# 8.7, erfcx 7.1 for x >= 0, ndtri 2.9, log_ndtr 3.0 for x <= 1, polygamma 5.3 for x > 0.
MEASURED: Mapping[str, float] = {
    "erfinv": 4, "lgamma": 8, "i0": 8, "i0e": 8, "i1": 24, "i1e": 20, "erfcx": 16, "ndtri": 8, "log_ndtr": 8,
    "polygamma": 12,
}  # fmt: skip


def special(
    name: str,
    function: Callable[[Tensor], Tensor],
    slope: Slope,
    extra: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Callable[..., Enclosure]:
    """Return the bound of f from its slope; `extra(x, y) u` is what evaluations lose beyond the ulps of `MEASURED`."""

    def bound(local: Local, a: Enclosure) -> Enclosure:
        return evaluated(local, a, function(a.mid if a.floating else parts(a)[0]), MEASURED[name], slope, extra)

    return bound


def evaluated(
    local: Local, a: Enclosure, y: Tensor, ulp: float, slope: Slope, extra: Callable[[Tensor, Tensor], Tensor] | None
) -> Enclosure:
    """Return the enclosure of y = f(a), see `special`."""
    x, reach = parts(a)
    moved = None
    if reach is not None:
        moved = torch.where(reach == 0, 0.0, slope(x - reach * _OWN, x + reach * _OWN) * reach * _OWN)
    if extra is not None:
        own = (extra(x, y) * (local.u_acc * _OWN)).nan_to_num(nan=torch.inf, posinf=torch.inf)
        moved = own if moved is None else moved + own
    return local.rounded(y, moved, ulp)


def _farthest(low: Tensor, high: Tensor) -> Tensor:
    return torch.maximum(low.abs(), high.abs())


def _nearest(low: Tensor, high: Tensor) -> Tensor:
    return torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs()))


def _at_ends(function: Callable[[Tensor], Tensor]) -> Slope:
    """Return the larger of |f'| at both ends, for an |f'| that is monotone or convex between poles at 0, -1, -2, ..."""

    def slope(low: Tensor, high: Tensor) -> Tensor:
        largest = torch.maximum(function(low).abs(), function(high).abs()) + 2.0**-40
        return torch.where((low > 0) | (low.floor() == high.floor()) & (low != low.floor()), largest, torch.inf)

    return slope


def polygamma_value(order: int, x: Tensor) -> Tensor:
    """Return polygamma in float64: (-1)^(n + 1) n! zeta(n + 1, x), by reflection for negative x where n = 1.

    torch.polygamma(1, x) itself is accurate to 1e-9 only.
    """
    scale = (-1) ** (order + 1) * math.factorial(order)
    value = torch.special.zeta(torch.full_like(x, order + 1), x) * scale
    value = torch.where(x == torch.inf, 0.0, value)
    if order != 1:
        return value
    inside = x - x.round()
    reflected = math.pi**2 / torch.sin(math.pi * inside).square() - torch.special.zeta(torch.full_like(x, 2.0), 1 - x)
    pole = (x < 0) & (inside == 0)  # sin(pi x) is what rounding makes of 0: nothing is known there, see `polygamma`
    return torch.where(x > 0, value, torch.where(pole, 0.0, reflected))


def digamma(local: Local, a: Enclosure) -> Enclosure:
    """psi(x), with an absolute error near its roots.

    x > 0: up to 10 terms 1/(x + k), each rounded in quotient and sum, then ln(10) - ...: no partial sum exceeds
    |psi(x)| + 3.2, so 12 u (|psi(x)| + 3.2). x < 0: psi(1 - x) - pi cot(pi x), 1 - x rounded
    (u |1 - x| psi'(1 - x) <= 2 u), pi x off by 2 u pi |x| and tan by 4 ulp: in all
    u (2 pi^2 |x| (1 + cot^2) + 12 pi |cot| + 12 |psi(1 - x)| + 41 + |psi(x)|).
    """
    x = parts(a)[0]
    return evaluated(local, a, torch.digamma(x), 0.0, _at_ends(lambda t: polygamma_value(1, t)), _digamma_extra)


def _digamma_extra(x: Tensor, y: Tensor) -> Tensor:
    right = (y.abs() + 3.2) * 12
    if not bool((x < 0).any()):
        return right
    cot = _cot(x)
    left = (1 + cot.square()) * x.abs() * (2 * math.pi**2) + cot.abs() * (12 * math.pi)
    left = left + torch.digamma(1 - x).abs() * 12 + 41 + y.abs()
    return torch.where(x < 0, left, right)


def _cot(x: Tensor) -> Tensor:
    return 1 / torch.tan(math.pi * (x - x.round()))


def _lgamma_extra(x: Tensor, y: Tensor) -> Tensor:
    """For x < 0: ln pi - ln |x sin(pi x)| - lgamma(-x), functions to 16 u, and ln sin(pi x) moves by cot 2 u pi |x|."""
    if not bool((x < 0).any()):
        return torch.zeros_like(x)
    sine = torch.log((torch.sin(math.pi * (x - x.round())) * x).abs()).abs()
    size = torch.lgamma(-x).abs() * 2 + sine + 2
    return torch.where(x < 0, size * 16 + _cot(x).abs() * x.abs() * (2 * math.pi), 0.0)


def polygamma(local: Local, order: int, a: Enclosure) -> Enclosure:
    """psi^(n)(x). Between poles |psi^(n + 1)| is monotone or convex, so largest at an end.

    For x < 0 and n = 1 it is (pi / sin(pi x))^2 - psi'(1 - x): the square moves by 2 pi |x cot(pi x)| times the 2 u of
    pi x, relatively, its functions to 24 u. For n > 1 it is n! sum (x + k)^-s, s = n + 1, with terms of
    both signs: each to
    24 u, and x + k after k additions off by (|x| + 2) (|x| + 1) u at most, which the term has s / |x + k| times. With
    r the     fractional part of x, sum |x + k|^-s <= zeta(s, r) + zeta(s, 1 - r).
    """
    if order == 0:
        return digamma(local, a)
    x = parts(a)[0]

    def extra(x: Tensor, y: Tensor) -> Tensor:
        if not bool((x < 0).any()):
            return torch.zeros_like(x)
        if order > 1:
            grown = _both_sides(order + 2, x) * (x.abs() + 2).square() * (order + 1)
            return torch.where(x < 0, (_both_sides(order + 1, x) * 24 + grown) * math.factorial(order), 0.0)
        sine = (math.pi / torch.sin(math.pi * (x - x.round()))).square()
        return torch.where(x < 0, sine * (_cot(x).abs() * x.abs() * (4 * math.pi) + 24) + 100, 0.0)

    slope = _at_ends(lambda t: polygamma_value(order + 1, t))
    return evaluated(local, a, polygamma_value(order, x), MEASURED["polygamma"], slope, extra)


def _both_sides(s: int, x: Tensor) -> Tensor:
    part = x - x.floor()
    power = torch.full_like(x, s)
    total: Tensor = torch.special.zeta(power, part) + torch.special.zeta(power, 1 - part)
    return total


def _erfinv_slope(low: Tensor, high: Tensor) -> Tensor:
    far = _farthest(low, high)
    return torch.where(far < 1, torch.exp(torch.erfinv(far).square()) * (math.sqrt(math.pi) / 2), torch.inf)


def _erfcx_slope(low: Tensor, high: Tensor) -> Tensor:
    """|erfcx'| = 2/sqrt(pi) - 2 z erfcx(z), decreasing; for z > 0 it is below 2/sqrt(pi) and below 1/(sqrt(pi) z^2).

    The latter as erfcx(z) >= (1 - 1/(2 z^2)) / (sqrt(pi) z) for z > 0.
    """
    root = math.sqrt(math.pi)
    negative = low.clamp(max=0)
    right = torch.minimum(2 / low.square(), torch.full_like(low, 4.0)) / (2 * root)
    return torch.where(low > 0, right, 2 / root - 2 * negative * torch.special.erfcx(negative))


def _ndtri_slope(low: Tensor, high: Tensor) -> Tensor:
    steep = [torch.exp(torch.special.ndtri(end).square() / 2) * math.sqrt(2 * math.pi) for end in (low, high)]
    return torch.where((low > 0) & (high < 1), torch.maximum(*steep), torch.inf)


def _log_ndtr_slope(low: Tensor, high: Tensor) -> Tensor:
    """Density over distribution, decreasing."""
    tail: Tensor = torch.special.erfcx(low * (-math.sqrt(0.5)))
    return math.sqrt(2 / math.pi) / tail


def _tail(x: Tensor, y: Tensor) -> Tensor:
    """exp(-x^2/2) and erfc take an argument off by 2 u: 2 x^2 u relative where they make up the value."""
    return torch.where(x > 0, x.square() * y.abs() * 2, 0.0)


def _ball(function: Callable[[flint.arb], flint.arb]) -> Any:
    return lambda n, a: n.ball(function, a)


def _exact_polygamma(n: Numbers, order: int, a: Any) -> Any:
    return n.ball(lambda x: flint.acb(x).polygamma(flint.acb(order)).real, a)


def _rule(name: str, bound: Any, exact: Any) -> Rule:
    return elementwise(f"{name}.default", bound, exact)


_S = torch.special

FAMILY = Family()
FAMILY.add(
    _rule("erfinv", special("erfinv", torch.erfinv, _erfinv_slope), _ball(lambda x: x.erfinv())),
    _rule("lgamma", special("lgamma", torch.lgamma, _at_ends(torch.digamma), _lgamma_extra),
          _ball(lambda x: x.lgamma() if x > 0 else abs(x.gamma()).log())),
    _rule("digamma", digamma, _ball(lambda x: x.digamma())),
    _rule("polygamma", polygamma, _exact_polygamma),
    _rule("i0", special("i0", torch.i0, lambda low, high: _S.i1(_farthest(low, high))),
          _ball(lambda x: x.bessel_i(flint.arb(0)))),
    _rule("special_i1", special("i1", _S.i1, lambda low, high: torch.i0(_farthest(low, high))),
          _ball(lambda x: x.bessel_i(flint.arb(1)))),
    _rule("special_i0e", special("i0e", _S.i0e, lambda low, high: _S.i0e(_nearest(low, high))),
          _ball(lambda x: x.bessel_i(flint.arb(0)) * (-abs(x)).exp())),
    _rule("special_i1e", special("i1e", _S.i1e, lambda low, high: _S.i0e(_nearest(low, high))),
          _ball(lambda x: x.bessel_i(flint.arb(1)) * (-abs(x)).exp())),
    _rule("special_erfcx", special("erfcx", _S.erfcx, _erfcx_slope, lambda x, y: _tail(-x, y) * 2),
          _ball(lambda x: (x * x).exp() * x.erfc())),
    _rule("special_ndtri", special("ndtri", _S.ndtri, _ndtri_slope),
          _ball(lambda p: flint.arb(2).sqrt() * (2 * p - 1).erfinv())),
    _rule("special_log_ndtr", special("log_ndtr", _S.log_ndtr, _log_ndtr_slope, _tail),
          _ball(lambda x: ((-x / flint.arb(2).sqrt()).erfc() / 2).log())),
)  # fmt: skip
