"""Activations that have a kernel of their own in PyTorch: gelu, silu, softplus, log_sigmoid.

With F the real function, x exact, X its bound, u the unit roundoff of the compute format and e(f) = (2 n + 1) u the
relative accuracy of an elementary function of n ulp, each rule adds up what the usual ways to compute F commit:

    gelu      x/2 (1 + erf(x/sqrt 2)), x/2 erfc(-x/sqrt 2); for "tanh" x/2 (1 + tanh w), x sigmoid(2 w)
    silu      x sigmoid(x), x / (1 + exp(-x))
    softplus  log1p(exp(x)), max(x, 0) + log1p(exp(-|x|))

Their derivatives are in activation_gradients.py.
"""

from __future__ import annotations

from typing import Any

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import DISCRETE, Local
from kernels_core.rules.cones import elementwise
from kernels_core.rules.operands import constant_rounding, parts
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.slopes import OWN, argument, grown

Tensor = torch.Tensor

TINY = 2.0**-50  # the absolute error of a slope formula in float64, where it cancels


def accuracy(local: Local, function: str) -> float:
    """Return e(function): the relative accuracy of an elementary function in the compute format."""
    return (2 * local.ulp(function) + 1) * local.u_acc


def gelu(local: Local, a: Enclosure, *, approximate: str = "none") -> Enclosure:
    """Return x Phi(x).

    erf form: x / sqrt 2 is off by 2 u, hence erf by 0.97 u + e(erf), as max |z| erf'(z) = 0.484, and 1 + erf by
    u (1 + erf) more: in all |x|/2 (e(erf) + u) + 2 u |gelu|. erfc form: |x|/2 0.97 u + (e(erfc) + u) |gelu|.
    tanh form: w = k x (1 + c x^2) is off by 7 u, hence tanh by 3.2 u, as max |w| tanh'(w) = 0.448:
    |x|/2 (e(tanh) + 4 u) + 2 u |gelu|. With sigmoid: max v sigmoid'(v) = 0.224, so |x| 1.6 u + (e(sigmoid) + u) |gelu|.
    Of the forms of one function the larger coefficients are taken. |gelu''| <= gelu''(0) = 0.798 for both.
    """
    x, reach = parts(a)
    mid = torch.ops.aten.gelu(x, approximate=approximate)
    absolute, ulp = gelu_accuracy(local, approximate)
    own = x.abs().mul_(absolute)
    if reach is not None:
        own.add_(gelu_slope(x, approximate).abs_().mul_(OWN).add_(TINY).add_(reach, alpha=0.4).mul_(reach))
    return local.rounded(mid, own, ulp)


def gelu_accuracy(local: Local, approximate: str) -> tuple[float, float]:
    """Return the absolute accuracy of Phi(x), and the relative one of x Phi(x) in ulp (see `gelu`)."""
    if approximate == "tanh":
        absolute = (accuracy(local, "tanh") + 4 * local.u_acc) / 2 + 0.224 * local.argument_error * OWN
        return absolute, local.ulp("sigmoid") + 1
    return (accuracy(local, "erf") + local.u_acc) / 2, local.ulp("erfc") + 1


def gelu_slope(x: Tensor, approximate: str) -> Tensor:
    """Return gelu'(x) in float64."""
    ones = torch.ones((), dtype=x.dtype, device=x.device).expand(x.shape)
    slope: Tensor = torch.ops.aten.gelu_backward(ones, x, approximate=approximate)
    return slope


def silu(local: Local, a: Enclosure) -> Enclosure:
    """Return x s, s = sigmoid(x): off by e(sigmoid) + u of the value, and |x| times a flushed s.

    With c = 1 - s, silu' = s (1 + x c) and |silu''(x + t)| <= s c exp(|t|) (2 + |x| + |t|), s and c taken at x, so the
    change is at most |silu'| X + s c (2 + |x| + X) X (exp(X) - 1) / 2, since exp(X) - 1 - X <= X (exp(X) - 1) / 2.
    """
    x, reach = parts(a)
    mid = torch.nn.functional.silu(x)
    own = x.abs().mul_(local.smallest_normal)
    off = argument(local, x, None)
    if off is not None or reach is not None:
        s, c = torch.sigmoid(x), torch.sigmoid(-x)
    if off is not None:  # of the exponential inside s
        own.add_(grown(s * c * x.abs(), off, 1.0))
    if reach is not None:
        slope = (x * c).add_(1).mul_(s).abs_().mul_(OWN).add_(s, alpha=TINY)
        own.add_(grown(silu_second(x, s, c, reach), reach, 1.0).mul_(0.5).add_(slope).mul_(reach))
    return local.rounded(mid, own, max(local.ulp("sigmoid"), local.ulp("exp") + 1) + 1)


def silu_second(x: Tensor, s: Tensor, c: Tensor, reach: Tensor) -> Tensor:
    """Return s c (2 + |x| + X) (see `silu`)."""
    return x.abs().add_(2).add_(reach).mul_(s).mul_(c).mul_(OWN)


def softplus(local: Local, a: Enclosure, beta: float = 1, threshold: float = 20) -> Enclosure:
    """Return ln(1 + exp(z)) / beta, z = beta x; x above the threshold of z, where it jumps by ln(1 + exp(-z)) / beta.

    e(exp) and e(log1p), each with condition at most 1 (both forms), and a sum. For beta not 1, z is off by d = 2 u (and
    the rounding of beta), which moves the value by d |z| sigmoid(z) <= d (|z| + 1) ln(1 + exp(z)), and the division is
    off by as much. The derivative sigmoid(z) has slope at most beta times itself.
    """
    x, reach = parts(a)
    beta, threshold = float(beta), float(threshold)
    mid = torch.nn.functional.softplus(x, beta, threshold)
    moved, z = reach, x * beta
    ulp = local.ulp("exp") + local.ulp("log1p") + 1
    own = None
    if (off := argument(local, x, reach)) is not None:
        moved = grown(torch.sigmoid(z), off, abs(beta))
    if beta != 1:
        own = (z.abs() + 1).mul_(mid.abs()).mul_(2 * beta_error(local, beta))
        reach = (z.abs() * (beta_error(local, beta) / abs(beta))).add_(0.0 if reach is None else reach)
    bound = own if moved is None else moved if own is None else moved.add_(own)
    return _jumped(local, local.rounded(mid, bound, ulp), z, reach, beta, threshold)


def beta_error(local: Local, beta: float) -> float:
    """Return the relative error of beta x or of a division by beta."""
    return 0.0 if beta == 1 else 2 * local.u_acc + constant_rounding(local, beta) / abs(beta)


def _jumped(local: Local, value: Enclosure, z: Tensor, reach: Tensor | None, beta: float,
            threshold: float) -> Enclosure:  # fmt: skip
    if reach is None:
        return value
    reach = reach * (abs(beta) * DISCRETE)
    near = ((z - threshold).abs() <= reach) & (reach > 0)
    if not bool(near.any()):
        return value
    local.lose_rad()
    jump = torch.log1p(torch.exp(reach - threshold)) * (OWN / abs(beta))
    return Enclosure(value.mid, value.bound_or_zero() + torch.where(near, jump, 0.0))


def log_sigmoid(local: Local, a: Enclosure) -> tuple[Enclosure, Enclosure]:
    """Return (-ln(1 + exp(-x)), exp(-|x|)); the second, PyTorch's buffer for the derivative, is not read here."""
    x, reach = parts(a)
    mid = torch.nn.functional.logsigmoid(x)
    off = argument(local, x, reach)
    moved = None if off is None else grown(torch.sigmoid(-x), off, 1.0)
    value = local.rounded(mid, moved, local.ulp("exp") + local.ulp("log1p") + 1)
    buffer = torch.exp(-x.abs()) if _keeps_buffer(local.step) else x.new_zeros(0)
    return value, local.rounded(buffer, off if buffer.numel() else None, local.ulp("exp"))


def _keeps_buffer(step: Any) -> bool:
    return step.metas[1] is None or step.metas[1].shape == step.shape


def _log_sigmoid_exact(call: Any, values: Any) -> Any:
    if call.output:
        return call.numbers.ball(lambda x: (-abs(x)).exp(), values)
    return call.numbers.ball(lambda x: -(-x).exp().log1p(), values)


def gelu_exact(n: Numbers, a: Any, *, approximate: str = "none") -> Any:
    """Return gelu in balls."""
    return n.ball(lambda x: x * phi_upper(x, approximate), a)


def phi_upper(x: flint.arb, approximate: str) -> flint.arb:
    """Return what gelu multiplies x by: the normal distribution function, or its approximation with tanh."""
    if approximate == "tanh":
        return (1 + gelu_inner(x).tanh()) / 2
    return (-x / flint.arb(2).sqrt()).erfc() / 2


def gelu_inner(x: flint.arb) -> flint.arb:
    """Return sqrt(2 / pi) (x + 0.044715 x^3), 0.044715 being the decimal number as float64 holds it."""
    return (2 / flint.arb.pi()).sqrt() * (x + flint.arb(0.044715) * x * x * x)


def _softplus_exact(n: Numbers, a: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    def one(x: Any, b: Any, limit: Any) -> Any:
        return x if n.less(limit, b * x) else (b * x).exp().log1p() / b

    return n.ball(one, a, beta, threshold)


def _log_sigmoid_tiles(step: Any) -> int:
    return len(step.shape) if _keeps_buffer(step) else 0


def _log_sigmoid_cone(call: Any) -> list[np.ndarray]:
    return [call.index]


FAMILY = Family()
FAMILY.add(
    elementwise("gelu.default", gelu, gelu_exact),
    elementwise("silu.default", silu, lambda n, a: n.ball(lambda x: x / (1 + (-x).exp()), a)),
    elementwise("softplus.default", softplus, _softplus_exact),
    Rule("aten.log_sigmoid_forward.default", log_sigmoid, _log_sigmoid_cone, _log_sigmoid_exact, _log_sigmoid_tiles),
)
