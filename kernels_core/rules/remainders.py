"""fmod and remainder: a - n b with n = trunc(a/b) or floor(a/b).

Where n is certain, |(a' - n b') - (a - n b)| <= A + |n| B. Where the bound of a/b reaches another integer the result
may jump by |b|: all of (-|b|, |b|) is granted. The operation is exact but for remainder's last addition of b. Where
a/b has no bound, b may be zero or a NaN, and the result NaN: nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import DISCRETE, Local
from kernels_core.rules.arithmetic import quotient_bound
from kernels_core.rules.cones import broadcast_cone, elementwise_exact, elementwise_tiles
from kernels_core.rules.operands import constant_rounding, integral, is_integral, parts, plus
from kernels_core.rules.record import Family, Rule

Tensor = torch.Tensor


def _remainder(function: Callable[[Any, Any], Tensor], whole: Callable[[Tensor], Tensor]) -> Callable[..., Enclosure]:
    def bound(local: Local, a: Any, b: Any) -> Enclosure:
        if is_integral(local):
            return integral(local, a, b)
        (x, x_bound), (y, y_bound) = parts(a), parts(b)
        x_bound = plus(x_bound, constant_rounding(local, a, stored=True))
        y_bound = plus(y_bound, constant_rounding(local, b, stored=True))
        mid = function(x, y)
        if x_bound is None and y_bound is None:
            return local.rounded(mid, None, subnormal=False)
        quotient = torch.as_tensor(x / y, dtype=torch.float64)
        moved = plus(x_bound, None if y_bound is None else whole(quotient).abs() * y_bound)
        reach = quotient_bound(quotient, x_bound, y, y_bound)
        slack = (reach + quotient.abs() * 2.0**-50) * DISCRETE
        jumps = (whole(quotient - slack) != whole(quotient + slack)) & (reach > 0)
        if bool(jumps.any()):
            local.lose_rad()
        size = torch.as_tensor(y, dtype=torch.float64, device=mid.device).abs() + (0.0 if y_bound is None else y_bound)
        moved = torch.where(reach.isinf(), torch.inf, torch.where(jumps, size + mid.abs(), moved))
        return local.rounded(mid, moved, subnormal=False)

    return bound


def _fmod(x: Any, y: Any) -> Tensor:
    return torch.fmod(torch.as_tensor(x, dtype=torch.float64), y)


def _exact(step: str) -> Any:
    def value(n: Numbers, a: Any, b: Any) -> Any:
        return n.each(lambda x, y: n.real(x) - n.real(y) * getattr(n, step)(n.divide(x, y)), a, b)

    return elementwise_exact(value)


fmod = _remainder(_fmod, torch.trunc)
remainder = _remainder(torch.remainder, torch.floor)

FAMILY = Family()
FAMILY.add(
    Rule("aten.fmod.Tensor", fmod, broadcast_cone, _exact("trunc"), elementwise_tiles),
    Rule("aten.fmod.Scalar", fmod, broadcast_cone, _exact("trunc"), elementwise_tiles),
    Rule("aten.remainder.Tensor", remainder, broadcast_cone, _exact("floor"), elementwise_tiles),
    Rule("aten.remainder.Scalar", remainder, broadcast_cone, _exact("floor"), elementwise_tiles),
    Rule("aten.remainder.Scalar_Tensor", remainder, broadcast_cone, _exact("floor"), elementwise_tiles),
)
