"""The normalisation y = (x - m) / sqrt(v + eps) and its derivative, each as one step of the filter.

These steps are not PyTorch's: fusion.py puts them in the place of the operations that PyTorch's norms and their
derivatives are made of. What they grant is the composition of those operations' rules, summed up row by row so that a
tile is read a few times instead of a hundred; only mean(C^2) is bounded by Minkowski's inequality instead of summed.

Forward, C and Y the bounds of c = x - m and y, mu and rho those of m and r = (v + eps)^(-1/2), X of x:

    C_j  = (1 + u) (X_j + mu) + u |c_j|
    mean |c| C  = (1 + u) (mean |c| X + mu mean |c|) + u v
    mean(C^2)^(1/2) <= (1 + u) (mean(X^2)^(1/2) + mu) + u v^(1/2)
    mean Q      = (1 + u) (2 mean |c| C + mean C^2) + u v     for the squares
    V    = ((n - 1) u (v + mean Q) + mean Q) (1 + 2 u) + 2 u v
    Y_j  = (1 + u) (|c_j| rho + C_j (r + rho)) + u |y_j|

Derivative, for the upstream gradient h of y (bound H), q = -r^3 sum(h c) / n with bound kappa:

    g_j  = h_j r + c_j q,   G_j = (1 + u) (T1_j + T2_j) + u |g_j|
    T1_j = (1 + u) (|h_j| rho + H_j (r + rho)) + u |h_j| r
    T2_j = (1 + u) (kappa |c_j| + C_j (|q| + kappa)) + u |q c_j|
    dx_j = g_j - mean g,    bound (1 + u) (G_j + lambda) + u |dx_j|,  lambda that of the mean
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.errors import InvariantError
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.arithmetic import divide, multiply
from kernels_core.rules.operands import constant_rounding
from kernels_core.rules.powers import inverse_root, power
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.special_groups import classed, joined
from kernels_core.rules.sums import mean_dims

Tensor = torch.Tensor
Dims = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Sums over the reduced dimensions, which stay with size 1; enlarged for their own float64 roundings."""

    dims: Dims
    more: float

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of non-negative values, rounded upwards."""
        return value.sum(self.dims, keepdim=True).mul_(self.more)

    def dot(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the sum of products of non-negative values, rounded upwards."""
        return self.sum(first * second)

    def root(self, value: Tensor) -> Tensor:
        """Return the root of the sum of squares, rounded upwards."""
        root: Tensor = torch.linalg.vector_norm(value, 2, self.dims, keepdim=True)
        return root.mul_(self.more)


def _rows(mid: Tensor, dims: Dims) -> tuple[_Rows, int]:
    n = math.prod(mid.shape[d] for d in dims)
    return _Rows(dims, INFLATE * (1 + n * 2.0**-52)), n


def normalize(local: Local, x: Enclosure, dims: Dims, eps: float) -> tuple[Enclosure, Enclosure, Enclosure]:
    """Return y, m and r; see the module."""
    c, size, mean, r = statistics(local, x, dims, eps)
    slope, shared, more = spread(local, mean, r)
    bound = size.mul_(slope).add_(shared)
    if x.bound is not None:
        bound.addcmul_(x.bound, more)
    return classed(Enclosure(c.mul_(r.mid), bound), x, dims, keepdim=True), mean, r


def statistics(local: Local, x: Enclosure, dims: Dims, eps: float) -> tuple[Tensor, Tensor, Enclosure, Enclosure]:
    """Return c = x - m, |c|, m and r."""
    rows, n = _rows(x.mid, dims)
    mean = mean_dims(local, x, dims, True)
    c = x.mid - mean.mid
    size = c.abs()
    variance = torch.mul(c, c, out=local.room(c, 2)).mean(dims, keepdim=True)
    bound = _variance_bound(local, x, mean, size, variance, eps, rows, n)
    return c, size, mean, inverse_root(local, Enclosure(variance + eps, bound))


def spread(local: Local, mean: Enclosure, r: Enclosure) -> tuple[Tensor, Tensor, Tensor]:
    """Return s, t and e of each row: Y_j = s |c_j| + t + e X_j."""
    u = local.factor()
    scale = r.mid + r.bound_or_zero()
    slope = ((1 + u) * (r.bound_or_zero() + u * scale) + u * r.mid) * INFLATE
    more = scale * ((1 + u) ** 2 * INFLATE)
    return slope, (more * mean.bound_or_zero()).add_(local.eta), more


def _variance_bound(
    local: Local, x: Enclosure, mean: Enclosure, size: Tensor, v: Tensor, eps: float, rows: _Rows, n: int
) -> Tensor:
    """Return the bound of v + eps, from V of the module and the addition."""
    u, mu = local.factor(), mean.bound_or_zero() * (1 + local.factor())
    upper = v * rows.more
    crossed = mu * (rows.sum(size) / n) + u * upper
    root = mu + u * upper.sqrt()
    if x.bound is not None:
        crossed += rows.dot(size, x.bound) * ((1 + u) / n)
        root += rows.root(x.bound) * ((1 + u) / math.sqrt(n))
    squares = (1 + u) * (2 * crossed + root * root) + (u * upper + local.eta)
    bound = (local.sum_error(n, v.numel()) * (upper + squares) + squares) * (1 + 2 * local.u_acc)
    bound = bound + (2 * local.u_acc * upper + (local.eta_acc + constant_rounding(local, eps, stored=True)))
    return (bound * (1 + u) + (upper + eps) * u) * INFLATE


def normalize_backward(
    local: Local, h: Enclosure, x: Enclosure, mean: Enclosure, rstd: Enclosure, dims: Dims
) -> Enclosure:
    """Return dx; see the module."""
    return _by_both(derivative(local, h, x, mean, rstd, dims), h, x, dims)


def derivative(
    local: Local,
    h: Enclosure,
    x: Enclosure,
    mean: Enclosure,
    rstd: Enclosure,
    dims: Dims,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    last: float = 0.0,
    given: bool = False,
) -> Enclosure:
    """Return dx before infinities and NaN have their class.

    Args:
        local: of the step.
        h: upstream gradient of y.
        x: as in `normalize`; exact where `relative` or `absolute` is given.
        mean: of `normalize`.
        rstd: of `normalize`.
        dims: of `normalize`.
        relative: H_j is `relative` |h_j| + `absolute` more than h's own bound.
        absolute: see `relative`.
        last: relative error of a rounding of dx itself.
        given: the memory of h may be taken for the result.
    """
    rows, n = _rows(x.mid, dims)
    u, r, rho, mu = local.factor(), rstd.mid, rstd.bound_or_zero(), mean.bound_or_zero() * (1 + local.factor())
    c, own_h = torch.sub(x.mid, mean.mid, out=local.room(x.mid, 1)), h.mid if given else h.mid.clone()
    product = own_h * c
    total = product.sum(dims, keepdim=True)
    magnitude = rows.sum(product.abs_())
    slope = total * -0.5 * torch.pow(r, 3) / n * 2  # as in `_slope`, whose bound needs |h|, in the memory of h
    g = torch.mul(own_h, r, out=product).addcmul_(c, slope)
    size_h, size_c = own_h.abs_(), c.abs_()
    off = _dot_bound(local, h, x, mean, size_h, size_c, magnitude, rows, n, relative, absolute)
    kappa = _slope(local, Enclosure(total, off), rstd, n).bound_or_zero()
    size_q, grown = slope.abs(), (1 + last) * INFLATE
    reach, wide, twice = size_q + kappa, r + rho, (1 + u) * (1 + u) * grown  # (1 + u) of g's rounding, and of dx's
    bound = size_h.mul_(twice * ((1 + u) * (rho + relative * wide) + u * r))
    if h.bound is not None:
        bound.addcmul_(h.bound, wide * (twice * (1 + u)))
    bound.addcmul_(size_c, twice * ((1 + u) * (u * reach + kappa) + u * size_q))
    if x.bound is not None:
        bound.addcmul_(x.bound, reach * (twice * (1 + u) ** 2))
    size_g = torch.abs(g, out=size_c)
    bound.add_(size_g, alpha=u * (1 + u) * grown)
    shared = twice * ((1 + u) * (reach * mu + absolute * wide) + 2 * local.eta)
    own = rows.sum(bound) + n * shared
    error = (own + local.sum_error(n, total.numel()) * (rows.sum(size_g) + own)) * INFLATE
    middle = divide(local, Enclosure(g.sum(dims, keepdim=True), error), n)
    dx = g.sub_(middle.mid)
    bound.add_(shared + middle.bound_or_zero() * ((1 + u) * grown))
    bound.add_(torch.abs(dx, out=size_g), alpha=u * grown + last * INFLATE)
    return Enclosure(dx, bound)


def _dot_bound(
    local: Local,
    h: Enclosure,
    x: Enclosure,
    mean: Enclosure,
    size_h: Tensor,
    size_c: Tensor,
    magnitude: Tensor,
    rows: _Rows,
    n: int,
    relative: float,
    absolute: float,
) -> Tensor:
    """Return the bound of sum h c: products P_j = (1 + u) (|h| C + H (|c| + C)) + u |h c|, then n - 1 additions.

    `magnitude` is sum |h c|.
    """
    u, mu = local.factor(), mean.bound_or_zero() * (1 + local.factor())
    all_h = rows.sum(size_h)
    moved = mu * all_h + u * magnitude
    if relative or absolute:
        moved += (1 + u) * (relative * magnitude + absolute * rows.sum(size_c)) + mu * (relative * all_h + n * absolute)
    if x.bound is not None:
        moved += rows.dot(size_h, x.bound) * (1 + u)
    if h.bound is not None:
        moved += rows.dot(h.bound, size_c) * (1 + u) + mu * rows.sum(h.bound.expand(h.shape))
        if x.bound is not None:
            moved += rows.dot(h.bound, x.bound) * (1 + u)
    products = (1 + u) * moved + u * magnitude + n * local.eta
    return (products + local.sum_error(n, magnitude.numel()) * (magnitude + products)) * INFLATE


def _slope(local: Local, dot: Enclosure, rstd: Enclosure, n: int) -> Enclosure:
    """Return q = -1/2 sum(h c) r^3 / n 2, operation by operation."""
    q = divide(local, multiply(local, multiply(local, dot, -0.5), power(local, rstd, 3)), n)
    return Enclosure(q.mid * 2, q.bound_or_zero() * 2)


def _by_both(value: Enclosure, h: Enclosure, x: Enclosure, dims: Dims) -> Enclosure:
    """A certain NaN or infinity of either operand makes its row NaN; an infinite result otherwise is not known."""
    if value.bound is None or all_finite(value.bound):
        return value
    found = classed(value, joined(h, x), dims, keepdim=True)
    unknown = found.mid.isinf()
    return Enclosure(found.mid.masked_fill(unknown, torch.nan), found.bound_or_zero().masked_fill(unknown, torch.inf))


def _tiles(position: int) -> Any:
    def tiles(step: Any) -> int:
        return min(step.args[position], default=0)

    return tiles


def never(call: Any, *operands: Any) -> Any:
    """Raise: exact values and cones are those of the operations that a step of the filter alone stands for."""
    raise InvariantError(f"{call.step.name} is a step of the filter alone: the exact tier has the operations it is of")


FAMILY = Family()
FAMILY.add(
    Rule("fused.normalize", normalize, never, never, _tiles(1), aligned="left", classed=True),
    Rule("fused.normalize_backward", normalize_backward, never, never, _tiles(4), aligned="left", classed=True),
)
