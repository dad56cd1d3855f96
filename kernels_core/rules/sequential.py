"""Sums and products whose terms are added one after the other, in the order of their index (`order: sequential`).

A running sum rounds what it holds, so its error is that of the partial sums p_k = t_1 + ... + t_k that really occur,
not that of sum |t|. With e_k the error after k terms and |fl(x) - x| <= u |x|,

    |e_k| <= |e_(k-1)| + u (|p_k| + |e_(k-1)|)        hence        |e_n| <= (1 + u)^n u sum_(k >= 2) |p_k|.

Terms that are rounded themselves, t_k (1 + d), |d| <= v, move each p_k by v sum |t| at most:

    |s' - s| <= v A + (1 + u)^n u (sum_(k >= 2) |p_k| + n v A),     A = sum |t|

which for terms of both signs is about sqrt(n) times less than n u A. Ascending and descending order are granted, the
larger sum of the two: in descending order the partial sums are s - p_(k-1). The bound of any order holds as well, so
the smaller of both is taken. A sum over several dimensions has no such order: it is granted any.

Matrix products. K partial products are too many to be formed. Cut after every b of them, P_j the sum of the first j
blocks: |p_k - P_(j-1)| + |P_j - p_k| <= A_j, the |t| of the block, so |p_k| <= (|P_(j-1)| + |P_j| + A_j) / 2 and

    sum_k |p_k| <= b / 2 (sum_j (|P_(j-1)| + |P_j|) + A).

b is about sqrt(K) / 2, from where on b A is the larger part for random signs. P_j is evaluated in float64, off by at
most K 2^-52 A.

Derived here; the recurrence is that of Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernels_core.filter.arithmetic import INFLATE, Local

Tensor = torch.Tensor
_OWN = 2.0**-52  # of n A: what our own partial sums may be off by


def ordered_dim(local: Local, shape: Sequence[int], dims: Sequence[int]) -> int | None:
    """Return the dimension along which the profile says the order of the terms, None where it says none."""
    several = [dim for dim in dims if shape[dim] > 1]
    return several[0] if local.sequential and len(several) == 1 else None


def of_sum(local: Local, mid: Tensor, bound: Tensor | None, dim: int, size: Tensor) -> Tensor:
    """Return the bound of the module for a sum along `dim`, which stays with size 1.

    Args:
        local: of the step.
        mid: the terms.
        bound: of the terms, None for exact ones; what it moves the sum by is not included.
        dim: the only dimension of `size` that is reduced.
        size: A.
    """
    n = mid.shape[dim]
    partial = mid.cumsum(dim)
    total = partial.narrow(dim, n - 1, 1)
    ascending = partial.narrow(dim, 1, n - 1).abs().sum(dim, keepdim=True)
    descending = (total - partial.narrow(dim, 0, n - 2)).abs_().sum(dim, keepdim=True).add_(total.abs())
    longest = torch.maximum(ascending, descending)
    if bound is not None:
        longest = longest.add_(bound.expand(mid.shape).sum(dim, keepdim=True), alpha=n)
    return _bound(local, longest, size, n, local.loaded * local.u_sum)


def of_product(local: Local, a: Tensor, b: Tensor, mid: Tensor, size: Tensor, moved: Tensor, more: float) -> Tensor:
    """Return the same for the matrix product a @ b.

    Args:
        local: of the step.
        a: [..., M, K], float64.
        b: [..., K, N], float64.
        mid: a @ b.
        size: A, upwards, with the bounds of the operands.
        moved: how far these bounds move any partial sum.
        more: relative error of each product besides its own rounding.
    """
    inner = a.shape[-1]
    width = max(1, math.isqrt(inner) // 2)
    ends, reverse = mid.abs(), mid.abs()  # sum over blocks of |P_(j-1)| + |P_j|, from either end
    partial = torch.zeros_like(mid)
    for start in range(width, inner, width):
        block = slice(start - width, start)
        partial += a[..., block] @ b[..., block, :]
        ends.add_(partial.abs(), alpha=2)
        reverse.add_((mid - partial).abs_(), alpha=2)
    longest = (torch.maximum(ends, reverse) + size) * (width / 2) + inner * moved
    rounded = local.u_sum + more + local.u_sum * more
    return _bound(local, longest, size, inner, rounded)


def after_sum(local: Local, n: int) -> float:
    """Return an upper bound of (1 + u)^n where sums are sequential and that is of use, else 1."""
    return math.exp(n * local.u_sum) * INFLATE if local.sequential and n * local.u_sum <= 1 else 1.0


def _bound(local: Local, partial: Tensor, size: Tensor, n: int, rounded: float) -> Tensor:
    """Return v A + (1 + u)^n u (sum |p_k| + n (v + own) A), and around mid n u A of our own; partial = sum |p_k|."""
    local.lose_rad()  # our own sums take any order: see filter/run.py
    if n * local.u_sum > 1:
        return torch.full_like(size, math.inf)
    growth = after_sum(local, n) * local.u_sum
    ours = n * local.own
    return partial * growth + size * ((rounded + ours) * INFLATE + growth * n * (rounded + n * _OWN))
