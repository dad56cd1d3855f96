"""Elementary functions but powers, each by the bound of slopes.py that fits it; two arguments by forms of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flint
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import elementwise
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family
from kernels_core.rules.slopes import (
    OWN,
    argument,
    ball,
    exact_limits,
    farthest,
    grown,
    log_lipschitz,
    logarithm,
    nearest_zero,
    steepest,
    taylor,
)

Tensor = torch.Tensor


def exponential(local: Local, a: Enclosure) -> Enclosure:
    """exp(x): far below zero with a large bound (a mask), exp(x + X) instead of exp(x) (exp(X) - 1) = 0 * inf."""
    x, reach = parts(a)
    reach = argument(local, x, reach)
    y = torch.exp(x)
    moved = None if reach is None else grown(y.clone(), reach, 1.0)
    if reach is not None and moved is not None and not all_finite(moved):
        moved = torch.where(moved.isfinite(), moved, torch.exp(x + reach * OWN))
    return exact_limits(local.rounded(y, moved, local.ulp("exp")), x, reach)


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
            share = y_bound / ((y + shift) * (1 - 2.0**-50)) * OWN
            moved_log = torch.where((share >= 0) & (share < 1), -torch.log1p(-share) * OWN, torch.inf)
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
    distance, radius = torch.hypot(x_bound, y_bound) * OWN, torch.hypot(x, y)
    share = distance / radius * OWN
    moved = torch.where(share < 1, torch.asin(share.clamp(max=1)) * OWN, torch.inf)
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
    moved = torch.hypot(zero if x_bound is None else x_bound, zero if y_bound is None else y_bound) * OWN
    return local.rounded(mid, moved, local.ulp("hypot"))


def _sigmoid_slope(x: Tensor, y: Tensor) -> Tensor:
    """Y (1 - y), with 1 - y = sigmoid(-x) known to 2^-52 absolutely."""
    return (1 - y).add_(2.0**-51).mul_(y)


def _tanh_slope(x: Tensor, y: Tensor) -> Tensor:
    return (1 - y.abs()).add_(2.0**-51).mul_(1 + y.abs())


def _erf_slope(low: Tensor, high: Tensor) -> Tensor:
    return torch.exp(-nearest_zero(low, high).square()) * (2 / math.sqrt(math.pi) * OWN)


def _tan_slope(low: Tensor, high: Tensor) -> Tensor:
    """1 + tan^2 at the ends; unbounded where a pole may lie between."""
    worst = 1 + torch.maximum(torch.tan(low).square(), torch.tan(high).square())
    same_branch = torch.floor(low / math.pi + 0.5) == torch.floor(high / math.pi + 0.5)
    return torch.where(same_branch, worst * (1 + 2.0**-30), torch.inf)


def _unit_slope(low: Tensor, high: Tensor) -> Tensor:
    """1 / sqrt(1 - x^2) at the end nearer to 1 (asin, acos)."""
    far = farthest(low, high)
    return torch.where(far < 1, torch.rsqrt(((1 - far) * (1 + far)).clamp(min=0)) * OWN, torch.inf)


_LN2, _LN10 = math.log(2), math.log(10)

FAMILY = Family()
FAMILY.add(
    elementwise("exp.default", exponential, ball(flint.arb.exp)),
    elementwise(
        "exp2.default",
        log_lipschitz("exp2", torch.exp2, lambda x, y: y * _LN2, _LN2),
        ball(lambda x: (x * flint.arb.const_log2()).exp()),
    ),
    elementwise(
        "expm1.default",
        log_lipschitz("expm1", torch.expm1, lambda x, y: y + (1 + 2.0**-51), 1.0),
        ball(flint.arb.expm1),
    ),
    elementwise("log.default", logarithm("log", torch.log, 1.0), ball(flint.arb.log), poles=True),
    elementwise(
        "log2.default",
        logarithm("log2", torch.log2, 1 / _LN2),
        ball(lambda x: x.log() / flint.arb.const_log2()),
        poles=True,
    ),
    elementwise(
        "log10.default",
        logarithm("log10", torch.log10, 1 / _LN10),
        ball(lambda x: x.log() / flint.arb.const_log10()),
        poles=True,
    ),
    elementwise("log1p.default", logarithm("log1p", torch.log1p, 1.0, 1.0), ball(flint.arb.log1p), poles=True),
    elementwise("sin.default", taylor("sin", torch.sin, lambda x, y: torch.cos(x).abs(), 1.0), ball(flint.arb.sin)),
    elementwise("cos.default", taylor("cos", torch.cos, lambda x, y: torch.sin(x).abs(), 1.0), ball(flint.arb.cos)),
    elementwise("tan.default", steepest("tan", torch.tan, _tan_slope), ball(flint.arb.tan)),
    elementwise("asin.default", steepest("asin", torch.asin, _unit_slope), ball(flint.arb.asin)),
    elementwise("acos.default", steepest("acos", torch.acos, _unit_slope), ball(flint.arb.acos)),
    elementwise("atan.default", taylor("atan", torch.atan, lambda x, y: 1 / (1 + x * x), 0.65), ball(flint.arb.atan)),
    elementwise("atan2.default", arctangent, ball(lambda y, x: flint.arb.atan2(y, x))),
    elementwise("hypot.default", hypotenuse, lambda n, a, b: n.sqrt(a * a + b * b)),
    elementwise(
        "sinh.default",
        steepest("sinh", torch.sinh, lambda low, high: torch.cosh(farthest(low, high))),
        ball(flint.arb.sinh),
    ),
    elementwise(
        "cosh.default",
        steepest("cosh", torch.cosh, lambda low, high: torch.sinh(farthest(low, high))),
        ball(flint.arb.cosh),
    ),
    elementwise(
        "tanh.default", log_lipschitz("tanh", torch.tanh, _tanh_slope, 2.0, limited=True), ball(flint.arb.tanh)
    ),
    elementwise(
        "asinh.default", taylor("asinh", torch.asinh, lambda x, y: torch.rsqrt(1 + x * x), 0.39), ball(flint.arb.asinh)
    ),
    elementwise(
        "acosh.default",
        steepest(
            "acosh",
            torch.acosh,
            lambda low, high: torch.where(low > 1, torch.rsqrt(((low - 1) * (low + 1)).clamp(min=0)), torch.inf),
        ),
        ball(flint.arb.acosh),
    ),
    elementwise(
        "atanh.default",
        steepest(
            "atanh",
            torch.atanh,
            lambda low, high: torch.where(
                farthest(low, high) < 1, 1 / ((1 - farthest(low, high)) * (1 + farthest(low, high))), torch.inf
            ),
        ),
        ball(flint.arb.atanh),
        poles=True,
    ),
    elementwise("erf.default", steepest("erf", torch.erf, _erf_slope), ball(flint.arb.erf)),
    elementwise("erfc.default", steepest("erfc", torch.erfc, _erf_slope), ball(flint.arb.erfc)),
    elementwise(
        "sigmoid.default",
        log_lipschitz("sigmoid", torch.sigmoid, _sigmoid_slope, 1.0, exponential=True, limited=True),
        ball(lambda x: 1 / (1 + (-x).exp())),
    ),
    elementwise(
        "logaddexp.default",
        log_add_exp("logaddexp", torch.logaddexp, 1.0),
        ball(lambda x, y: x.max(y) + (-abs(x - y)).exp().log1p()),
    ),
    elementwise(
        "logaddexp2.default",
        log_add_exp("logaddexp", torch.logaddexp2, 1 / _LN2),
        ball(lambda x, y: x.max(y) + (-abs(x - y) * flint.arb.const_log2()).exp().log1p() / flint.arb.const_log2()),
    ),
    elementwise(
        "xlogy.Tensor", x_log_y("log", torch.log, 0.0), ball(lambda x, y: x * y.log() if not x == 0 else flint.arb(0))
    ),
    elementwise(
        "special_xlog1py.default",
        x_log_y("log1p", torch.log1p, 1.0),
        ball(lambda x, y: x * y.log1p() if not x == 0 else flint.arb(0)),
    ),
)
