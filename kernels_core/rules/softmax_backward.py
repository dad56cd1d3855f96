"""The derivatives of softmax and log-softmax, given their outputs.

Softmax, with t = sum_k g_k p_k and bounds G, P of the operands, for p (g - t) as for p g - p t:

    |t' - t|   <= D = sum_k (|g_k| P_k + G_k (|p_k| + P_k) + n u (|g_k| + G_k)(|p_k| + P_k))
    |dx' - dx| <= P_j (|g_j - t| + G_j + D) + |p_j| (G_j + D) + 3 u (|p_j| + P_j)(|g_j| + G_j + |t| + D)

(two products and a difference: each term passes at most three roundings, a factor 1 + 2^-20 covers their products).

Log-softmax, with s = sum g_k, p = exp(y), Y the bound of y, e the error of an exponential:

    dx = g_j - p_j s,    |p' - p| <= P = p (exp(Y + e) - 1),    |s' - s| <= D = sum G_k + (n - 1) u sum (|g_k| + G_k)
    |dx' - dx| <= G_j + p D + P (|s| + D) + 2 u (p + P)(|s| + D) + u (|g_j| + G_j)

Where y is so far below zero that Y is large too (a mask of -1e30), P is taken as exp(y + Y + e) itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.movement import before
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.scans import line
from kernels_core.rules.slopes import argument
from kernels_core.rules.softmax import exp_error
from kernels_core.rules.special_groups import classed, joined

_MORE = 1 + 2.0**-20


def _length(mid: torch.Tensor, dim: int) -> int:
    return mid.shape[dim] if mid.dim() else 1


def softmax_backward(local: Local, grad: Enclosure, output: Enclosure, dim: int, input_dtype: Any = None) -> Enclosure:
    """P (g - sum g p), the bound in the form P |g - t| + (|p| + P)(G + D + 3 u (|g| + G + |t| + D))."""
    g, p = grad.mid, output.mid
    product = g * p
    total = product.sum(dim, keepdim=True) if g.dim() else product.clone()
    u, n = 3 * local.u_acc * _MORE, _length(g, dim)
    size_g = local.magnitude(g, 1) if grad.bound is None else local.magnitude(g, 1).add_(grad.bound)
    size_p = local.magnitude(p, 2) if output.bound is None else local.magnitude(p, 2).add_(output.bound)
    slope = local.dot_error(n, total.numel()) * _MORE
    wobble = _dot_error(local, grad, output, size_g, size_p, slope, dim).add_(n * local.eta_sum)
    difference = torch.sub(g, total, out=local.room(g, 3))
    mid = torch.mul(difference, p, out=product)
    factor = size_g.mul_(u) if grad.bound is None else size_g.mul_(u).add_(grad.bound)
    bound = factor.add_((u * (total.abs() + wobble)).add_(wobble)) * size_p
    if output.bound is not None:
        bound.addcmul_(difference.abs_(), output.bound)
    bound.mul_(INFLATE).add_(3 * local.eta_acc)
    return local.stored(_by_both(Enclosure(mid, bound), grad, output, dim))


def _dot_error(
    local: Local,
    grad: Enclosure,
    output: Enclosure,
    size_g: torch.Tensor,
    size_p: torch.Tensor,
    slope: float,
    dim: int,
) -> torch.Tensor:
    """Return D: sum of (|g| + G)(P + n u (|p| + P)) and G |p|."""
    weight = torch.mul(size_p, slope, out=local.room(size_p, 3))
    if output.bound is not None:
        weight.add_(output.bound)
    weight.mul_(size_g)
    if grad.bound is not None:
        weight.addcmul_(output.mid.abs(), grad.bound)
    inflate = INFLATE * (1 + _length(weight, dim) * 2.0**-52)
    return (weight.sum(dim, keepdim=True) if weight.dim() else weight.clone()).mul_(inflate)


def log_softmax_backward(
    local: Local, grad: Enclosure, output: Enclosure, dim: int, input_dtype: Any = None
) -> Enclosure:
    """G - exp(y) sum g."""
    g, y = grad.mid, output.mid
    u, n, e = local.u_acc, _length(g, dim), exp_error(local)
    total = g.sum(dim, keepdim=True) if g.dim() else g.clone()
    size_g = grad.magnitude_upper()
    wobble = size_g.sum(dim, keepdim=True) if g.dim() else size_g.clone()
    wobble.mul_(local.sum_error(n, total.numel())).add_(local.sum_underflow(n))
    if grad.bound is not None:
        wobble += grad.bound.expand(g.shape).sum(dim, keepdim=True) if g.dim() else grad.bound
    wobble = wobble.mul_(INFLATE * (1 + n * 2.0**-52))
    p = y.exp()
    mid = torch.addcmul(g, p, total, value=-1)
    reach = total.abs() + wobble
    reach_y = argument(local, y, output.bound)
    off = p * math.expm1(e) if reach_y is None else _exp_bound(y, p, reach_y, e)
    # p D + P (1 + 2 u) (|s| + D) + 2 u p (|s| + D) + u (|g| + G) + G
    # (exp may flush below the smallest normal)
    bound = off.mul_(reach * (1 + 2 * u)).add_(p * (reach * (2 * u) + wobble))
    bound = bound.add_(size_g, alpha=u).add_(reach * local.smallest_normal)
    if grad.bound is not None:
        bound.add_(grad.bound)
    if output.bound is not None:
        bound = torch.where(
            (p == 0) & (output.bound == 0), size_g * u if grad.bound is None else size_g * u + grad.bound, bound
        )
    bound = bound.mul_(_MORE).add_(local.eta_acc)
    return local.stored(_by_both(Enclosure(mid, bound), grad, output, dim))


def _exp_bound(y: torch.Tensor, p: torch.Tensor, reach: torch.Tensor, e: float) -> torch.Tensor:
    """Return P = p (exp(Y + e) - 1), or exp(y + Y + e) where Y > 1."""
    bound = reach.add(e).expm1_().mul_(p)
    return bound if not bool((reach > 1).any()) else torch.where(reach > 1, torch.exp(y + (reach + e)), bound)


def _by_both(value: Enclosure, grad: Enclosure, output: Enclosure, dim: int) -> Enclosure:
    """Classes: a NaN or infinity of either operand decides its row (products of exact ones, as in the module)."""
    if value.bound is None or all_finite(value.bound):
        return value
    dims = (dim % value.mid.dim(),) if value.mid.dim() else ()
    return classed(value, joined(grad, output), dims, keepdim=True)


def _cone(call: Any) -> list[np.ndarray]:
    lines, _ = line(call.step.operand_metas[0], int(call.step.args[2]), call.index)
    return [lines, lines]


def _own(call: Any, values: Any) -> Any:
    _, place = line(call.step.operand_metas[0], int(call.step.args[2]), call.index)
    return values[np.arange(len(place)), place]


def _softmax_exact(call: Any, grad: Any, output: Any) -> Any:
    return _own(call, output) * (_own(call, grad) - np.add.reduce(grad * output, axis=1))


def _log_softmax_exact(call: Any, grad: Any, output: Any) -> Any:
    p = call.numbers.ball(lambda v: v.exp(), _own(call, output))
    return _own(call, grad) - p * np.add.reduce(grad, axis=1)


FAMILY = Family()
FAMILY.add(
    Rule("aten._softmax_backward_data.default", softmax_backward, _cone, _softmax_exact, before(2), aligned="left",
         classed=True),
    Rule("aten._log_softmax_backward_data.default", log_softmax_backward, _cone, _log_softmax_exact, before(2),
         aligned="left", classed=True),
)  # fmt: skip
