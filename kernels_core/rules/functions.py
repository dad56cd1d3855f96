"""Elementary functions.

For y = f(x) and a legal argument x' with |x' - x| <= X, |f(x') - f(x)| is bounded by one of

    |f'(x)| (exp(c X) - 1) / c      where |f''| <= c |f'| everywhere: then |f'(x + t)| <= |f'(x)| exp(c |t|)  (Gronwall)
    |f'(x)| X + M X^2 / 2           where |f''| <= M everywhere (Taylor)
    f(x) - f(x - X)                 where f is concave and increasing (log, sqrt: the left side is the steeper one)
    sup |f'| X                      over [x - X, x + X]

All of them are star-shaped in X, as filter/run.py asks. Then the accuracy of f and the rounding are added. The float64
value of |f'(x)| itself is inflated for its own error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flint
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import DISCRETE, INFLATE, Local
from kernels_core.rules.arithmetic import constant_rounding, exact_zeros, integral, parts, plus
from kernels_core.rules.cones import broadcast_cone, elementwise_exact, elementwise_tiles
from kernels_core.rules.record import Family, Rule

Tensor = torch.Tensor
Slope = Callable[[Tensor, Tensor], Tensor]  # (x, y = f(x)) -> |f'(x)|, correct to 2^-45 relative or 2^-50 absolute

_OWN = 1 + 2.0**-44  # the float64 error of a slope formula of a few operations and functions of 4 ulp


def grown(slope: Tensor, reach: Tensor, rate: float) -> Tensor:
    """Return an upper bound of slope (exp(rate reach) - 1) / rate, cheap where every reach is small.

    For t = rate reach <= 2^-6, (exp(t) - 1) / t <= 1 + t, since exp(t) <= 1 + t + t^2 there.
    """
    small = float(reach.amax()) * rate <= 2.0**-6 if reach.numel() else True
    if small:
        return slope.mul_((reach * (rate * _OWN)).add_(_OWN)).mul_(reach)
    return slope.mul_(torch.expm1(reach * rate) * (_OWN / rate))


def argument(local: Local, x: Tensor, reach: Tensor | None) -> Tensor | None:
    """Return how far the argument of an exponential may be off: by its bound, and as profiles/triton.py says."""
    if not local.argument_error:
        return reach
    own = torch.where(x.isfinite(), x.abs(), 0.0).mul_(local.argument_error * INFLATE)
    return own if reach is None else own.add_(reach, alpha=(1 + local.argument_error) * INFLATE)


def log_lipschitz(
    name: str, function: Callable[[Tensor], Tensor], slope: Slope, rate: float, *, exponential: bool = False
) -> Callable[..., Enclosure]:
    """Return the bound of an f with |f''| <= rate |f'|; `exponential` where one is evaluated at x to compute it."""

    def bound(local: Local, a: Enclosure) -> Enclosure:
        x, reach = parts(a)
        reach = argument(local, x, reach) if exponential else reach
        y = function(x)
        moved = None if reach is None else grown(slope(x, y), reach, rate)
        return _exact_limits(local.rounded(y, moved, local.ulp(name)), x, reach)

    return bound


def exponential(local: Local, a: Enclosure) -> Enclosure:
    """exp(x): far below zero with a large bound (a mask), exp(x + X) instead of exp(x) (exp(X) - 1) = 0 * inf."""
    x, reach = parts(a)
    reach = argument(local, x, reach)
    y = torch.exp(x)
    moved = None if reach is None else grown(y.clone(), reach, 1.0)
    if reach is not None and moved is not None and not all_finite(moved):
        moved = torch.where(moved.isfinite(), moved, torch.exp(x + reach * _OWN))
    return _exact_limits(local.rounded(y, moved, local.ulp("exp")), x, reach)


def _exact_limits(value: Enclosure, x: Tensor, reach: Tensor | None) -> Enclosure:
    """Return the value with bound 0 where the function is 0 at a certain infinity, as exp is at -inf."""
    if all_finite(x):
        return value
    limit = x.isinf() & (value.mid == 0)
    return Enclosure(
        value.mid, torch.where(limit if reach is None else limit & (reach == 0), 0.0, value.bound_or_zero())
    )


def taylor(name: str, function: Callable[[Tensor], Tensor], slope: Slope, second: float) -> Callable[..., Enclosure]:
    """Return the bound of an f with |f''| <= second."""

    def bound(local: Local, a: Enclosure) -> Enclosure:
        x, reach = parts(a)
        y = function(x)
        moved = None if reach is None else (slope(x, y) * _OWN + 2.0**-50 + reach * (second / 2 * _OWN)) * reach
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
        moved = torch.where(reach == 0, 0.0, largest(x - reach * _OWN, x + reach * _OWN) * reach * _OWN)
        return local.rounded(y, moved, local.ulp(name))

    return bound


def _nearest_zero(low: Tensor, high: Tensor) -> Tensor:
    """Return the smallest magnitude in [low, high]."""
    return torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs()))


def _farthest(low: Tensor, high: Tensor) -> Tensor:
    return torch.maximum(low.abs(), high.abs())


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
        share = (reach / room).mul_(_OWN)
        moved = torch.log1p(-share).mul_(-scale * _OWN)
        moved = torch.where((share < 1) & (room > 0), moved, torch.inf)
        value = local.rounded(y, torch.where(reach == 0, 0.0, moved), local.ulp(name))
        return _undefined(value, (room < 0) & (reach * _OWN < -room))

    return bound


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
    certain, reach = reach, reach * _OWN
    moved = reach / (y + torch.sqrt((x - reach).clamp(min=0)))
    outside = (x <= reach) & (reach > 0)
    if bool(outside.any()):
        local.lose_rad()
        underflow = (x >= 0) & (reach <= local.smallest_normal * 2.0**20)
        moved = torch.where(outside, torch.where(underflow, torch.sqrt(x + reach), torch.inf), moved)
    value = local.rounded(y, torch.where(reach == 0, 0.0, moved * _OWN), local.ulp("sqrt"), subnormal=False)
    return exact_at_zero(_undefined(value, x + reach < 0), x, certain)


def exact_at_zero(value: Enclosure, x: Tensor, reach: Tensor | None) -> Enclosure:
    """Return the value of a function with f(0) = 0, with bound 0 at a certain 0: no implementation misses it."""
    zero = x == 0 if reach is None else (x == 0) & (reach == 0)
    return Enclosure(value.mid, value.bound_or_zero().masked_fill(zero, 0.0)) if bool(zero.any()) else value


def _undefined(value: Enclosure, outside: Tensor) -> Enclosure:
    """Return the value with bound 0 where every legal argument is outside the domain: NaN for certain."""
    bound = value.bound_or_zero()
    return value if all_finite(bound) else Enclosure(value.mid, torch.where(outside, 0.0, bound))


def inverse_root(local: Local, a: Enclosure) -> Enclosure:
    """x^(-1/2), convex and decreasing, steeper on the left: (x - X)^(-1/2) - x^(-1/2) <= X (x - X)^(-3/2) / 2."""
    x, reach = parts(a)
    y = torch.rsqrt(x)
    if reach is None:
        return local.rounded(y, None, local.ulp("rsqrt"))
    low = (x - reach * _OWN) * (1 - 2.0**-50)
    steep = torch.rsqrt(low)
    moved = torch.where(low > 0, steep * steep * steep * reach * (0.5 * _OWN), torch.inf)
    return _undefined(local.rounded(y, torch.where(reach == 0, 0.0, moved), local.ulp("rsqrt")), x + reach < 0)


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
        moved = abs(p) * torch.pow(x.abs() + reach * _OWN, p - 1) * reach * _OWN
        if p != int(p):  # NaN for a negative number, see `root`
            crossing = (x < reach) & ~((x >= 0) & (reach <= local.smallest_normal * 2.0**20))
            moved = torch.where(crossing, torch.inf, moved)
    else:
        low = (x.abs() - reach * _OWN) * (1 - 2.0**-50)
        moved = torch.where(low > 0, abs(p) * torch.pow(low, p - 1) * reach * _OWN, torch.inf)
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
    share = x_bound / x.abs() * _OWN
    moved_log = torch.where(share < 1, -torch.log1p(-share), torch.inf)
    log = torch.log(x.abs()).abs()
    change = p.abs() * moved_log + log * p_bound + torch.where(p_bound == 0, 0.0, moved_log * p_bound)
    moved = y.abs() * torch.expm1(change * _OWN) * _OWN
    settled = (x_bound == 0) & ((p_bound == 0) | (x == 0) & (p - p_bound > 0))
    moved = torch.where((p_bound > 0) & (x < 0), torch.inf, moved)
    value = local.rounded(y, torch.where(settled, 0.0, moved), local.ulp("pow"))
    fraction = p - p.floor()  # a negative number to any power in reach that is no integer is NaN for certain
    undefined = (x + x_bound < 0) & (fraction > p_bound * DISCRETE) & (fraction + p_bound * DISCRETE < 1)
    return Enclosure(y, torch.where(undefined, 0.0, value.bound_or_zero()))


def log_add_exp(name: str, function: Callable[[Tensor, Tensor], Tensor], scale: float) -> Callable[..., Enclosure]:
    """Return the bound of ln(e^a + e^b) (or to base 2): the slopes are two weights of sum 1, so it moves by max(A, B).

    A kernel computes max + log1p(exp(-|a - b|)): the difference and the sum are rounded, u (|a - b| w + |y|), w <= 1/2,
    and |a - b| exp(-|a - b|) <= 1, so u (1 + |y|) and the functions' accuracy of a number below ln 2.
    """

    def bound(local: Local, a: Enclosure, b: Enclosure) -> Enclosure:
        (x, x_bound), (y, y_bound) = parts(a), parts(b)
        mid = function(x, y)
        own = 2 * (local.ulp("exp") + local.ulp("log1p") + 2) * local.u_acc * max(scale, 1.0) + local.argument_error
        moved = None
        if x_bound is not None or y_bound is not None:
            zero = torch.zeros((), dtype=torch.float64, device=mid.device)
            moved = torch.maximum(zero if x_bound is None else x_bound, zero if y_bound is None else y_bound)
        infinite = mid.isinf()
        extra = torch.where(infinite, 0.0, own)
        result = local.rounded(mid, extra if moved is None else moved + extra, 1.0)
        return Enclosure(
            mid, torch.where(infinite & (extra if moved is None else moved).isfinite(), 0.0, result.bound_or_zero())
        )

    return bound


def x_log_y(name: str, log: Callable[[Tensor], Tensor], shift: float) -> Callable[..., Enclosure]:
    """Return the bound of x ln(shift + y), 0 where x is a certain 0."""

    def bound(local: Local, a: Any, b: Any) -> Enclosure:
        (x, x_bound), (y, y_bound) = parts(a), parts(b)
        y = torch.as_tensor(y, dtype=torch.float64)
        x = torch.as_tensor(x, dtype=torch.float64)
        value = log(y)
        zero = torch.zeros((), dtype=torch.float64, device=value.device)
        moved_log = zero
        if y_bound is not None:
            share = y_bound / ((y + shift) * (1 - 2.0**-50)) * _OWN
            moved_log = torch.where((share >= 0) & (share < 1), -torch.log1p(-share) * _OWN, torch.inf)
        moved_log = moved_log + 2 * (local.ulp("log") + 1) * local.u_acc * value.abs()
        if shift:  # log1p may flush what is below the smallest normal number, as in `rounded`
            moved_log = moved_log + (local.smallest_normal + local.eta)
        x_bound = zero if x_bound is None else x_bound
        nothing = (x == 0) & (x_bound == 0) & ~y.isnan()
        mid = torch.where(nothing, 0.0, x * value)
        moved = x.abs() * moved_log + torch.where(x_bound == 0, 0.0, x_bound * (value.abs() + moved_log))
        return local.rounded(mid, torch.where(nothing, 0.0, moved * INFLATE), 0.0)

    return bound


def arctangent(local: Local, a: Enclosure, b: Enclosure) -> Enclosure:
    """atan2(y, x): the angle moves by at most asin(d / r), d the distance that the point moves, <= (pi / 2) d / r."""
    (y, y_bound), (x, x_bound) = parts(a), parts(b)
    mid = torch.atan2(y, x)
    if y_bound is None and x_bound is None:
        return local.rounded(mid, None, local.ulp("atan2"))
    zero = torch.zeros((), dtype=torch.float64, device=mid.device)
    y_bound, x_bound = zero if y_bound is None else y_bound, zero if x_bound is None else x_bound
    distance, radius = torch.hypot(x_bound, y_bound) * _OWN, torch.hypot(x, y)
    share = distance / radius * _OWN
    moved = torch.where(share < 1, torch.asin(share.clamp(max=1)) * _OWN, torch.inf)
    across = (x < x_bound) & (y.abs() <= y_bound) & (y_bound > 0)  # the branch cut
    return local.rounded(
        mid,
        torch.where((y_bound == 0) & (x_bound == 0), 0.0, torch.where(across, torch.inf, moved)),
        local.ulp("atan2"),
    )


def hypotenuse(local: Local, a: Enclosure, b: Enclosure) -> Enclosure:
    """sqrt(a^2 + b^2): 1-Lipschitz in the Euclidean norm."""
    (x, x_bound), (y, y_bound) = parts(a), parts(b)
    mid = torch.hypot(x, y)
    if x_bound is None and y_bound is None:
        return local.rounded(mid, None, local.ulp("hypot"))
    zero = torch.zeros((), dtype=torch.float64, device=mid.device)
    moved = torch.hypot(zero if x_bound is None else x_bound, zero if y_bound is None else y_bound) * _OWN
    return local.rounded(mid, moved, local.ulp("hypot"))


def _sigmoid_slope(x: Tensor, y: Tensor) -> Tensor:
    """Y (1 - y), with 1 - y = sigmoid(-x) known to 2^-52 absolutely."""
    return (1 - y).add_(2.0**-51).mul_(y)


def _tanh_slope(x: Tensor, y: Tensor) -> Tensor:
    return (1 - y.abs()).add_(2.0**-51).mul_(1 + y.abs())


def _erf_slope(low: Tensor, high: Tensor) -> Tensor:
    return torch.exp(-_nearest_zero(low, high).square()) * (2 / math.sqrt(math.pi) * _OWN)


def _tan_slope(low: Tensor, high: Tensor) -> Tensor:
    """1 + tan^2 at the ends; unbounded where a pole may lie between."""
    worst = 1 + torch.maximum(torch.tan(low).square(), torch.tan(high).square())
    same_branch = torch.floor(low / math.pi + 0.5) == torch.floor(high / math.pi + 0.5)
    return torch.where(same_branch, worst * (1 + 2.0**-30), torch.inf)


def _unit_slope(low: Tensor, high: Tensor) -> Tensor:
    """1 / sqrt(1 - x^2) at the end nearer to 1 (asin, acos)."""
    far = _farthest(low, high)
    return torch.where(far < 1, torch.rsqrt(((1 - far) * (1 + far)).clamp(min=0)) * _OWN, torch.inf)


def _rule(name: str, bound: Any, exact: Any, **flags: Any) -> Rule:
    return Rule(f"aten.{name}", bound, broadcast_cone, elementwise_exact(exact), elementwise_tiles, **flags)


def _ball(function: Any) -> Any:
    return lambda n, *values: n.ball(function, *values)


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


_LN2, _LN10 = math.log(2), math.log(10)

FAMILY = Family()
FAMILY.add(
    _rule("exp.default", exponential, _ball(flint.arb.exp)),
    _rule(
        "exp2.default",
        log_lipschitz("exp2", torch.exp2, lambda x, y: y * _LN2, _LN2),
        _ball(lambda x: (x * flint.arb.const_log2()).exp()),
    ),
    _rule(
        "expm1.default",
        log_lipschitz("expm1", torch.expm1, lambda x, y: y + (1 + 2.0**-51), 1.0),
        _ball(flint.arb.expm1),
    ),
    _rule("log.default", logarithm("log", torch.log, 1.0), _ball(flint.arb.log), poles=True),
    _rule(
        "log2.default",
        logarithm("log2", torch.log2, 1 / _LN2),
        _ball(lambda x: x.log() / flint.arb.const_log2()),
        poles=True,
    ),
    _rule(
        "log10.default",
        logarithm("log10", torch.log10, 1 / _LN10),
        _ball(lambda x: x.log() / flint.arb.const_log10()),
        poles=True,
    ),
    _rule("log1p.default", logarithm("log1p", torch.log1p, 1.0, 1.0), _ball(flint.arb.log1p), poles=True),
    _rule("sqrt.default", root, lambda n, a: n.sqrt(a)),
    _rule("rsqrt.default", inverse_root, lambda n, a: n.divide(1, n.sqrt(a)), poles=True),
    _rule("pow.Tensor_Scalar", power, _exact_power, poles=True),
    _rule("pow.Tensor_Tensor", power, _exact_power, poles=True),
    _rule("pow.Scalar", power, _exact_power, poles=True),
    _rule("square.default", lambda local, a: power(local, a, 2), lambda n, a: a * a),
    _rule("sin.default", taylor("sin", torch.sin, lambda x, y: torch.cos(x).abs(), 1.0), _ball(flint.arb.sin)),
    _rule("cos.default", taylor("cos", torch.cos, lambda x, y: torch.sin(x).abs(), 1.0), _ball(flint.arb.cos)),
    _rule("tan.default", steepest("tan", torch.tan, _tan_slope), _ball(flint.arb.tan)),
    _rule("asin.default", steepest("asin", torch.asin, _unit_slope), _ball(flint.arb.asin)),
    _rule("acos.default", steepest("acos", torch.acos, _unit_slope), _ball(flint.arb.acos)),
    _rule("atan.default", taylor("atan", torch.atan, lambda x, y: 1 / (1 + x * x), 0.65), _ball(flint.arb.atan)),
    _rule("atan2.default", arctangent, _ball(lambda y, x: flint.arb.atan2(y, x))),
    _rule("hypot.default", hypotenuse, lambda n, a, b: n.sqrt(a * a + b * b)),
    _rule(
        "sinh.default",
        steepest("sinh", torch.sinh, lambda low, high: torch.cosh(_farthest(low, high))),
        _ball(flint.arb.sinh),
    ),
    _rule(
        "cosh.default",
        steepest("cosh", torch.cosh, lambda low, high: torch.sinh(_farthest(low, high))),
        _ball(flint.arb.cosh),
    ),
    _rule("tanh.default", log_lipschitz("tanh", torch.tanh, _tanh_slope, 2.0), _ball(flint.arb.tanh)),
    _rule(
        "asinh.default", taylor("asinh", torch.asinh, lambda x, y: torch.rsqrt(1 + x * x), 0.39), _ball(flint.arb.asinh)
    ),
    _rule(
        "acosh.default",
        steepest(
            "acosh",
            torch.acosh,
            lambda low, high: torch.where(low > 1, torch.rsqrt(((low - 1) * (low + 1)).clamp(min=0)), torch.inf),
        ),
        _ball(flint.arb.acosh),
    ),
    _rule(
        "atanh.default",
        steepest(
            "atanh",
            torch.atanh,
            lambda low, high: torch.where(
                _farthest(low, high) < 1, 1 / ((1 - _farthest(low, high)) * (1 + _farthest(low, high))), torch.inf
            ),
        ),
        _ball(flint.arb.atanh),
        poles=True,
    ),
    _rule("erf.default", steepest("erf", torch.erf, _erf_slope), _ball(flint.arb.erf)),
    _rule("erfc.default", steepest("erfc", torch.erfc, _erf_slope), _ball(flint.arb.erfc)),
    _rule(
        "sigmoid.default",
        log_lipschitz("sigmoid", torch.sigmoid, _sigmoid_slope, 1.0, exponential=True),
        _ball(lambda x: 1 / (1 + (-x).exp())),
    ),
    _rule(
        "logaddexp.default",
        log_add_exp("logaddexp", torch.logaddexp, 1.0),
        _ball(lambda x, y: x.max(y) + (-abs(x - y)).exp().log1p()),
    ),
    _rule(
        "logaddexp2.default",
        log_add_exp("logaddexp", torch.logaddexp2, 1 / _LN2),
        _ball(lambda x, y: x.max(y) + (-abs(x - y) * flint.arb.const_log2()).exp().log1p() / flint.arb.const_log2()),
    ),
    _rule(
        "xlogy.Tensor", x_log_y("log", torch.log, 0.0), _ball(lambda x, y: x * y.log() if not x == 0 else flint.arb(0))
    ),
    _rule(
        "special_xlog1py.default",
        x_log_y("log1p", torch.log1p, 1.0),
        _ball(lambda x, y: x * y.log1p() if not x == 0 else flint.arb(0)),
    ),
)
