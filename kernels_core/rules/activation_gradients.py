"""Derivatives of activations as PyTorch's formulas write them: grad times a slope, both with their bounds.

With G, X the bounds of grad and of the argument, s the slope and D what bounds |s' - s| over all legal arguments and
evaluations,

    |grad' s' - grad s| <= |s| G + (|grad| + G) D

and the product rounds. u, e(f) as in activations.py.
"""

from __future__ import annotations

import math
from typing import Any

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure, hull
from kernels_core.exact.numbers import Numbers
from kernels_core.filter.arithmetic import DISCRETE, Local
from kernels_core.rules.activations import (
    TINY,
    accuracy,
    beta_error,
    gelu_accuracy,
    gelu_inner,
    gelu_slope,
    phi_upper,
    silu_second,
)
from kernels_core.rules.comparisons import compared
from kernels_core.rules.cones import elementwise, elementwise_exact
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.slopes import OWN, argument, grown

Tensor = torch.Tensor


def scaled(g: Tensor, g_reach: Tensor | None, slope: Tensor | None, error: Tensor | float) -> Tensor:
    """Return |slope| G + (|grad| + G) error; `slope` is read where grad has a bound only."""
    if g_reach is None or slope is None:
        return g.abs() * error  # not in place: an upstream gradient may be broadcast
    return slope.abs() * g_reach + (g.abs() + g_reach) * error


def gelu_backward(local: Local, grad: Enclosure, a: Enclosure, *, approximate: str = "none") -> Enclosure:
    """Return grad (Phi(x) + x phi(x)), phi the normal density.

    Phi by erf is off by (e(erf) + u) / 2 (see `gelu`), by erfc by e(erfc) Phi: part of e(erfc) |slope| for x > 0 and
    at most e(erfc) / 2 for x < 0. The argument of phi = exp(-x^2/2)/sqrt(2 pi) is off by u x^2, the rest by
    e(exp) + 4 u; with max phi |x|^3 = 0.463 and max phi |x| = 0.242: 0.5 u + 0.25 (e(exp) + 4 u). Sum, product: 2 u.
    tanh form: x/2 (1 - tanh^2 w) w' takes phi's place. tanh^2 is off by 2 e(tanh) + u (4 e(sigmoid) where tanh is made
    of sigmoid), times |x w'|/2; the error 7 u of w and the 6 roundings of the product come to less than 8 u.
    |gelu''| = phi |2 - x^2|, |gelu'''| <= 0.78; the tanh form's second derivative differs from that by at most 0.0019.
    """
    (g, g_reach), (x, reach) = parts(grad), parts(a)
    absolute, ulp = gelu_accuracy(local, approximate)
    error: Any
    if approximate == "tanh":
        tanh = max(2 * accuracy(local, "tanh") + local.u_acc, 4 * accuracy(local, "sigmoid"))
        tanh += 0.9 * local.argument_error  # tanh w = 2 sigmoid(2 w) - 1, off by 2 max v sigmoid'(v) = 0.448, squared
        error = _tanh_weight(x).mul_(tanh).add_(absolute + 8 * local.u_acc)
    else:
        density = 1.5 * local.u_acc + 0.25 * (accuracy(local, "exp") + 4 * local.u_acc + local.argument_error)
        error = max(absolute, accuracy(local, "erfc") / 2) + density
    if reach is not None:
        second = _density_curve(x).add_(0.0019 if approximate == "tanh" else 0.0)
        error = second.mul_(OWN).add_(TINY).add_(reach, alpha=0.39).mul_(reach).add_(error)
    slope = None if g_reach is None else gelu_slope(x, approximate).abs_().add_(TINY)
    mid = torch.ops.aten.gelu_backward(*torch.broadcast_tensors(g, x), approximate=approximate)
    return local.rounded(mid, scaled(g, g_reach, slope, error), ulp)


def _tanh_weight(x: Tensor) -> Tensor:
    """Return |x w'(x)| / 2, w' = k (1 + 3 c x^2)."""
    return x.square().mul_(3 * 0.044715).add_(1).mul_(x.abs()).mul_(math.sqrt(2 / math.pi) / 2 * OWN)


def _density_curve(x: Tensor) -> Tensor:
    """Return phi(x) |2 - x^2|."""
    square = x.square()
    return torch.exp(square * -0.5).mul_(square.sub_(2).abs_()).mul_(1 / math.sqrt(2 * math.pi))


def silu_backward(local: Local, grad: Enclosure, a: Enclosure) -> Enclosure:
    """Return grad s (1 + x c), s = sigmoid(x), c = 1 - s.

    c is off by e(sigmoid) s + u, so s (1 + x c) by s (|x| + 1) (e(sigmoid) + 3 u), also as s + (x s) c, and the factors
    by e(sigmoid) + 3 u of the value. A flushed s stands for the smallest normal number. X: see `silu`.
    """
    (g, g_reach), (x, reach) = parts(grad), parts(a)
    s = torch.sigmoid(x)
    c = 1 - s
    slope = (x * c).add_(1).mul_(s)
    error = s.mul(accuracy(local, "sigmoid") + 3 * local.u_acc).add_(local.smallest_normal).mul_(x.abs().add_(1))
    if (off := argument(local, x, None)) is not None:  # moves s and c by s c (exp(off) - 1) each
        error.add_(grown(s * (c + TINY) * (x.abs() + 1), off, 1.0))
    if reach is not None:
        error.add_(grown(silu_second(x, s, c.add_(TINY), reach), reach, 1.0))
    return local.rounded(g * slope, scaled(g, g_reach, slope, error), local.ulp("sigmoid") + 2)


def sigmoid_backward(local: Local, grad: Enclosure, output: Enclosure) -> Enclosure:
    """Return grad y (1 - y): y + t gives y (1 - y) + t (1 - 2 y) - t^2; three roundings."""
    (g, g_reach), (y, reach) = parts(grad), parts(output)
    slope = (1 - y).mul_(y)
    error: Any = 0.0
    if reach is not None:
        error = (1 - 2 * y).abs_().add_(reach).mul_(reach).mul_(OWN)
    return local.rounded(g * slope, scaled(g, g_reach, slope, error), 1.5)


def tanh_backward(local: Local, grad: Enclosure, output: Enclosure) -> Enclosure:
    """Return grad (1 - y^2): y + t gives 1 - y^2 - 2 t y - t^2; y^2 is off by u y^2, and two roundings."""
    (g, g_reach), (y, reach) = parts(grad), parts(output)
    square = y.square()
    slope = 1 - square
    error = square.mul_(local.u_acc * OWN)
    if reach is not None:
        error.add_(y.abs().mul_(2).add_(reach).mul_(reach).mul_(OWN))
    return local.rounded(g * slope, scaled(g, g_reach, slope, error), 1.0)


def softplus_backward(local: Local, grad: Enclosure, a: Enclosure, beta: float, threshold: float) -> Enclosure:
    """Return grad sigmoid(z), z = beta x; grad where z is above the threshold, a jump of sigmoid(-z).

    exp(z) / (1 + exp(z)): e(exp), a sum and a quotient; a flushed exponential stands for the smallest normal number.
    For beta not 1, z is off by d |z|, which moves the sigmoid by d |z| s (1 - s).
    """
    (g, g_reach), (x, reach) = parts(grad), parts(a)
    beta, threshold = float(beta), float(threshold)
    z = x * beta
    s = torch.sigmoid(z)
    slope = torch.where(z > threshold, 1.0, s)
    error: Any = local.smallest_normal
    d = beta_error(local, beta)
    if reach is not None or d:
        z_reach = z.abs().mul_(d).add_(0.0 if reach is None else reach * abs(beta)).mul_(DISCRETE)
        near = ((z - threshold).abs() <= z_reach) & (z_reach > 0)
        jump = torch.sigmoid(z_reach - threshold).mul_(OWN)
        error = grown((1 - s).add_(TINY).mul_(s), z_reach, 1.0).add_(error)
        if bool(near.any()):
            local.lose_rad()
            error = error + torch.where(near, jump, 0.0)
    if (off := argument(local, z, None)) is not None:
        error = error + grown((1 - s).add_(TINY).mul_(s), off, 1.0)
    ulp = max(local.ulp("exp") + 1, local.ulp("sigmoid")) + 1
    return local.rounded(g * slope, scaled(g, g_reach, slope, error), ulp)


def log_sigmoid_backward(local: Local, grad: Enclosure, a: Enclosure, buffer: Any) -> Enclosure:
    """Return grad sigmoid(-x) = 1 - z / (1 + z) or z / (1 + z); PyTorch takes z = exp(-|x|) from its buffer.

    A flushed z stands for the smallest normal number.
    """
    (g, g_reach), (x, reach) = parts(grad), parts(a)
    slope = torch.sigmoid(-x)
    error: Any = local.smallest_normal
    if (off := argument(local, x, reach)) is not None:
        error = grown(torch.sigmoid(x).mul_(slope), off, 1.0).add_(error)
    ulp = max(local.ulp("exp") + 1, local.ulp("sigmoid")) + 1
    return local.rounded(g * slope, scaled(g, g_reach, slope, error), ulp)


def threshold_backward(local: Local, grad: Enclosure, a: Enclosure, threshold: float) -> Enclosure:
    """Return grad where x > threshold, else 0: a kink at the threshold."""
    return hull(compared(local, torch.le, a, threshold, kinked=True), _zero(grad), Enclosure(*parts(grad)),
                centred=local.leaves_open)  # fmt: skip


def shrink_backward(local: Local, grad: Enclosure, a: Enclosure, lambd: float) -> Enclosure:
    """Return grad where |x| > lambda, else 0."""
    size = Enclosure(a.mid.abs(), a.bound)
    return hull(compared(local, torch.le, size, lambd, kinked=True), _zero(grad), Enclosure(*parts(grad)),
                centred=local.leaves_open)  # fmt: skip


def _zero(like: Enclosure) -> Enclosure:
    return Enclosure(torch.zeros((), dtype=torch.float64, device=like.mid.device))


def _gelu_backward_exact(n: Numbers, grad: Any, a: Any, *, approximate: str = "none") -> Any:
    def one(g: Any, x: Any) -> Any:
        if approximate == "tanh":
            rate = (2 / flint.arb.pi()).sqrt() * (1 + 3 * flint.arb(0.044715) * x * x)
            return g * (phi_upper(x, approximate) + x / 2 * (1 - gelu_inner(x).tanh() ** 2) * rate)
        return g * (phi_upper(x, approximate) + x * (-x * x / 2).exp() / (2 * flint.arb.pi()).sqrt())

    return n.ball(one, grad, a)


def _sigmoid(x: flint.arb) -> flint.arb:
    return 1 / (1 + (-x).exp())


def _silu_backward_exact(n: Numbers, grad: Any, a: Any) -> Any:
    return n.ball(lambda g, x: g * _sigmoid(x) * (1 + x * _sigmoid(-x)), grad, a)


def _softplus_backward_exact(n: Numbers, grad: Any, a: Any, beta: Any, threshold: Any) -> Any:
    return n.ball(lambda g, x, b, limit: g if n.less(limit, b * x) else g * _sigmoid(b * x), grad, a, beta, threshold)


def _threshold_exact(n: Numbers, grad: Any, a: Any, threshold: Any) -> Any:
    """NaN is not below the threshold: the gradient passes."""

    def one(g: Any, x: Any, t: Any) -> Any:
        x, t = n.real(x), n.real(t)
        return n.real(0) if n.less(x, t) or n.equal(x, t) else n.real(g)

    return n.each(one, grad, a, threshold)


def _shrink_exact(n: Numbers, grad: Any, a: Any, lambd: Any) -> Any:
    return _threshold_exact(n, grad, n.each(abs, a), lambd)


def _log_sigmoid_cone(call: Any) -> list[np.ndarray]:
    """The buffer is not needed (and may be empty)."""
    return [*broadcast_cone_of(call, 2), np.full((len(call.index), 0), -1, dtype=np.int64)]


def broadcast_cone_of(call: Any, count: int) -> list[np.ndarray]:
    """Return the index of the first `count` operands, which have the result's shape."""
    return [call.index] * count


def _log_sigmoid_tiles(step: Any) -> int:
    return len(step.shape) if step.operand_metas[-1].shape == step.shape else 0


FAMILY = Family()
FAMILY.add(
    elementwise("gelu_backward.default", gelu_backward, _gelu_backward_exact),
    elementwise("silu_backward.default", silu_backward, _silu_backward_exact),
    elementwise("sigmoid_backward.default", sigmoid_backward, lambda n, g, y: g * y * (1 - y)),
    elementwise("tanh_backward.default", tanh_backward, lambda n, g, y: g * (1 - y * y)),
    elementwise("softplus_backward.default", softplus_backward, _softplus_backward_exact),
    Rule("aten.log_sigmoid_backward.default", log_sigmoid_backward, _log_sigmoid_cone,
         elementwise_exact(lambda n, g, x, _: n.ball(lambda p, q: p * _sigmoid(-q), g, x)), _log_sigmoid_tiles),
    elementwise("threshold_backward.default", threshold_backward, _threshold_exact, classed=True),
    elementwise("softshrink_backward.default", shrink_backward, _shrink_exact, classed=True),
    elementwise("hardshrink_backward.default", shrink_backward, _shrink_exact, classed=True),
)  # fmt: skip
