"""How far a function of one argument moves with its argument.

For y = f(x) and a legal argument x' with |x' - x| <= X, |f(x') - f(x)| is bounded by one of

    |f'(x)| (exp(c X) - 1) / c      where |f''| <= c |f'| everywhere: then |f'(x + t)| <= |f'(x)| exp(c |t|)  (Gronwall)
    |f'(x)| X + M X^2 / 2           where |f''| <= M everywhere (Taylor)
    f(x) - f(x - X)                 where f is concave and increasing (log, sqrt: the left side is the steeper one)
    sup |f'| X                      over [x - X, x + X]

All of them are star-shaped in X, as filter/run.py asks. Then the accuracy of f and the rounding are added. The float64
value of |f'(x)| itself is inflated for its own error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.operands import parts

Tensor = torch.Tensor
Slope = Callable[[Tensor, Tensor], Tensor]  # (x, y = f(x)) -> |f'(x)|, correct to 2^-45 relative or 2^-50 absolute

OWN = 1 + 2.0**-44  # the float64 error of a slope formula of a few operations and functions of 4 ulp


def grown(slope: Tensor, reach: Tensor, rate: float) -> Tensor:
    """Return an upper bound of slope (exp(rate reach) - 1) / rate, cheap where every reach is small.

    For t = rate reach <= 2^-6, (exp(t) - 1) / t <= 1 + t, since exp(t) <= 1 + t + t^2 there.
    """
    small = float(reach.amax()) * rate <= 2.0**-6 if reach.numel() else True
    if small:
        return slope.mul_((reach * (rate * OWN)).add_(OWN)).mul_(reach)
    return slope.mul_(torch.expm1(reach * rate) * (OWN / rate))


def argument(local: Local, x: Tensor, reach: Tensor | None) -> Tensor | None:
    """Return how far the argument of an exponential may be off: by its bound, and as profiles/triton.py says."""
    if not local.argument_error:
        return reach
    own = torch.where(x.isfinite(), x.abs(), 0.0).mul_(local.argument_error * INFLATE)
    return own if reach is None else own.add_(reach, alpha=(1 + local.argument_error) * INFLATE)


def log_lipschitz(
    name: str,
    function: Callable[[Tensor], Tensor],
    slope: Slope,
    rate: float,
    *,
    exponential: bool = False,
    limited: bool = False,
) -> Callable[..., Enclosure]:
    """Return the bound of an f with |f''| <= rate |f'|.

    Args:
        name: of the function, whose accuracy is granted.
        function: f in float64.
        slope: |f'|.
        rate: see above.
        exponential: an exponential is evaluated at x to compute f.
        limited: f increases from -1 or 0 to 1, so that large arguments with large bounds do not move it.
    """

    def bound(local: Local, a: Enclosure) -> Enclosure:
        x, reach = parts(a)
        reach = argument(local, x, reach) if exponential else reach
        y = function(x)
        moved = None if reach is None else grown(slope(x, y), reach, rate)
        if limited and reach is not None and moved is not None:
            moved = _no_farther(local, function, (x, reach), y, moved, rate)
        return exact_limits(local.rounded(y, moved, local.ulp(name)), x, reach)

    return bound


def _no_farther(
    local: Local, function: Callable[[Tensor], Tensor], a: tuple[Tensor, Tensor], y: Tensor, moved: Tensor, rate: float
) -> Tensor:
    """Return `moved`, or how far an increasing f gets within the reach where that is less.

    Only where rate X is above 1, since the latter is not star-shaped in X. Its three values of size 1 are off by
    FLOAT64_FUNCTION_ULP each, less than 2^-48 together.
    """
    x, reach = a
    if not reach.numel() or float(reach.amax()) * rate <= 1:
        return moved
    far = (reach * rate > 1) & reach.isfinite()
    local.lose_rad()
    within = torch.maximum(function(x + reach) - y, y - function(x - reach)) + 2.0**-48
    return torch.where(far, torch.minimum(moved, within), moved)


def taylor(name: str, function: Callable[[Tensor], Tensor], slope: Slope, second: float) -> Callable[..., Enclosure]:
    """Return the bound of an f with |f''| <= second."""

    def bound(local: Local, a: Enclosure) -> Enclosure:
        x, reach = parts(a)
        y = function(x)
        moved = None if reach is None else (slope(x, y) * OWN + 2.0**-50 + reach * (second / 2 * OWN)) * reach
        return local.rounded(y, moved, local.ulp(name))

    return bound


def steepest(
    name: str, function: Callable[[Tensor], Tensor], largest: Callable[[Tensor, Tensor], Tensor]
) -> Callable[..., Enclosure]:
    """Return the bound of an f from `largest(low, high)`, an upper bound of |f'| between two points (inf allowed)."""

    def bound(local: Local, a: Enclosure) -> Enclosure:
        x, reach = parts(a)
        y = function(x)
        if reach is None:
            return local.rounded(y, None, local.ulp(name))
        moved = torch.where(reach == 0, 0.0, largest(x - reach * OWN, x + reach * OWN) * reach * OWN)
        return local.rounded(y, moved, local.ulp(name))

    return bound


def logarithm(
    name: str, function: Callable[[Tensor], Tensor], scale: float, shift: float = 0.0
) -> Callable[..., Enclosure]:
    """Return the bound of scale ln(shift + x): -scale log1p(-X / (shift + x)), unbounded where X reaches the pole."""

    def bound(local: Local, a: Enclosure) -> Enclosure:
        x, reach = parts(a)
        y = function(x)
        if reach is None:
            return local.rounded(y, None, local.ulp(name))
        room = (x + shift if shift else x) * (1 - 2.0**-50)
        share = (reach / room).mul_(OWN)
        moved = torch.log1p(-share).mul_(-scale * OWN)
        moved = torch.where((share < 1) & (room > 0), moved, torch.inf)
        value = local.rounded(y, torch.where(reach == 0, 0.0, moved), local.ulp(name))
        return undefined(value, (room < 0) & (reach * OWN < -room))

    return bound


def exact_limits(value: Enclosure, x: Tensor, reach: Tensor | None) -> Enclosure:
    """Return the value with bound 0 where the function is 0 at a certain infinity, as exp is at -inf."""
    if all_finite(x):
        return value
    limit = x.isinf() & (value.mid == 0)
    return Enclosure(
        value.mid, torch.where(limit if reach is None else limit & (reach == 0), 0.0, value.bound_or_zero())
    )


def exact_at_zero(value: Enclosure, x: Tensor, reach: Tensor | None) -> Enclosure:
    """Return the value of a function with f(0) = 0, with bound 0 at a certain 0: no implementation misses it."""
    zero = x == 0 if reach is None else (x == 0) & (reach == 0)
    return Enclosure(value.mid, value.bound_or_zero().masked_fill(zero, 0.0)) if bool(zero.any()) else value


def undefined(value: Enclosure, outside: Tensor) -> Enclosure:
    """Return the value with bound 0 where every legal argument is outside the domain: NaN for certain."""
    bound = value.bound_or_zero()
    return value if all_finite(bound) else Enclosure(value.mid, torch.where(outside, 0.0, bound))


def nearest_zero(low: Tensor, high: Tensor) -> Tensor:
    """Return the smallest magnitude in [low, high]."""
    return torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs()))


def farthest(low: Tensor, high: Tensor) -> Tensor:
    """Return the largest magnitude in [low, high]."""
    return torch.maximum(low.abs(), high.abs())


def ball(function: Any) -> Any:
    """Return the exact evaluation of a function of FLINT's balls."""
    return lambda n, *values: n.ball(function, *values)
