"""A normalisation with its weight and bias, and their derivatives, where what they are given is exact.

Steps of the filter alone (filter/closed.py), which stand for those of normalization.py and the products and sums around
them. With exact x, w, b and g every bound is, for each row, a polynomial in |c_j|, |h_j| or |g_j c_j|, so that no bound
of an intermediate value is ever stored. s and t as in `spread`, Y_j = s |c_j| + t.

Output.  z = y w has the bound (1 + u) |w_j| Y_j + u |z_j| + eta, and |z_j| = |c_j| r |w_j|; out = z + b:

    (1 + u) (|w_j| (S |c_j| + T) + eta) + u |out_j|,    S = (1 + u) s + u r,  T = (1 + u) t

Derivative of x.  h = g w has the bound H_j = u |h_j| + eta, which normalization.py takes in this form.

Derivative of w, a sum over N rows of g y, each product with the bound (1 + u) |g_j| Y_j + u |g_j y_j| + eta, and
k = (N - 1) u of the sum:

    sum (A |g_j c_j| + B |g_j|) + N eta (1 + k),    A = S (1 + k) + k r,  B = T (1 + k)

Products that are exact because a factor is zero have no bound in the rules that these steps stand for. Nor has a column
of w without gradients here, nor a zero weight an eta; a single zero among other terms grants eta as any other does.
Where an infinity or NaN is met `Arithmetic.special` is set.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.formats import format_of
from kernels_core.rules.normalization import derivative, never, spread, statistics
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.sums import sum_tiles

Tensor = torch.Tensor
Dims = tuple[int, ...]


def _checked(local: Local, value: Enclosure, *exact: Enclosure | None) -> Enclosure:
    """Return the value; say that it means nothing where it is not finite or an operand is not exact."""
    known = all(operand is None or operand.bound is None for operand in exact)
    if not known or not all_finite(value.bound_or_zero()):
        local.arithmetic.special = True
    return value


def normalize_affine(
    local: Local, x: Enclosure, weight: Enclosure, bias: Enclosure | None, dims: Dims, eps: float
) -> tuple[Enclosure, Enclosure, Enclosure]:
    """Return out, m and r; see the module."""
    c, size, mean, r = statistics(local, x, dims, eps)
    u, size_w = local.factor(), weight.mid.abs()
    slope, shared, _ = spread(local, mean, r)
    grown = (1 + u if bias is not None else 1.0) * INFLATE
    bound = size.mul_(((1 + u) * slope + u * r.mid) * grown).add_(shared * ((1 + u) * grown)).mul_(size_w)
    mid = c.mul_(r.mid).mul_(weight.mid)
    if bias is not None:
        mid.add_(bias.mid)
        bound.add_(local.magnitude(mid, 1), alpha=u * INFLATE)
    least = local.eta * grown
    bound.add_(least if bool((size_w > 0).all()) else (size_w > 0).to(torch.float64) * least)
    return _checked(local, Enclosure(mid, bound), x, weight, bias), mean, r


def normalize_affine_backward(
    local: Local,
    g: Enclosure,
    weight: Enclosure | None,
    x: Enclosure,
    mean: Enclosure,
    rstd: Enclosure,
    dims: Dims,
    *,
    compute: torch.dtype,
    roundings: int = 1,
) -> Enclosure:
    """Return dx with the rounding of `exactref.factored`."""
    own = 0.0 if local.arithmetic.float64 else format_of(compute).unit_roundoff * roundings
    last = own * (1 + own)
    if weight is None:
        return _checked(local, derivative(local, g, x, mean, rstd, dims, last=last), g, x)
    h, relative = Enclosure(g.mid * weight.mid), local.factor() * INFLATE
    value = derivative(local, h, x, mean, rstd, dims, relative=relative, absolute=local.eta, last=last, given=True)
    return _checked(local, value, g, x, weight)


def weight_gradient(
    local: Local, g: Enclosure, dims: Dims, keepdim: bool, x: Enclosure, mean: Enclosure, rstd: Enclosure
) -> Enclosure:
    """Return the sum of g y over some leading dimensions; see the module."""
    return local.stored(_part(local, g, dims, keepdim, x, mean, rstd))


def _part(
    local: Local, g: Enclosure, dims: Dims, keepdim: bool, x: Enclosure, mean: Enclosure, rstd: Enclosure
) -> Enclosure:
    """Return the part of one tile, `sum_part` of the products."""
    u, n = local.factor(), _terms(local.step)
    added = local.sum_error(n)
    slope, shared, _ = spread(local, mean, rstd)
    more = INFLATE * (1 + n * 2.0**-52)
    through_c = (((1 + u) * slope + u * rstd.mid) * (1 + added) + added * rstd.mid) * more
    through_g = shared * ((1 + u) * (1 + added) * more)
    c = torch.sub(x.mid, mean.mid, out=local.room(x.mid, 1))
    product = torch.mul(g.mid, c, out=local.room(c, 2))
    mid = _weighted(product, rstd.mid, dims, keepdim)
    bound = _weighted(local.magnitude(g.mid, 3), through_g, dims, keepdim)
    least = mean.mid.numel() * local.eta * (1 + added) * more
    bound = torch.where(bound > 0, bound + least, 0.0) + _weighted(product.abs_(), through_c, dims, keepdim)
    return _checked(local, Enclosure(mid, bound), g, x)


def _terms(step: Any) -> int:
    return math.prod(step.operand_metas[0].shape[: len(step.args[1])])


def _weighted(value: Tensor, weight: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    """Return the sum of value weight over the leading dimensions `dims`, weight being one number for each row."""
    kept = value.shape[len(dims) :]
    found = torch.mv(value.reshape(weight.numel(), kept.numel()).t(), weight.reshape(-1))
    return found.reshape(*[1] * len(dims) * keepdim, *kept)


FAMILY = Family()
FAMILY.add(
    Rule("closed.normalize", normalize_affine, never, never, lambda step: min(step.args[3]), classed=True),
    Rule("closed.normalize_backward", normalize_affine_backward, never, never, lambda step: min(step.args[5]),
         classed=True),
    Rule("closed.normalize_weight", weight_gradient, never, never, sum_tiles, aligned="left", classed=True,
         partial=_part, finish=Local.stored),
)  # fmt: skip
