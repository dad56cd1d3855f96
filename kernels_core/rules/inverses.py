"""What a perturbation of a matrix does to its inverse and to the solutions of linear systems, element by element.

For (A + F) X' = B + H with |F| <= E elementwise, X the solution of A X = B and R any approximate inverse of A,

    |X' - X| <= (I - 2 G)^-1 |A^-1| (|H| + E |X|),   G = |A^-1| E,

where X may be replaced by an X~ with |X~ - X| within the same bound. Proof: (A + F)(X' - X) = H - F X, hence
d = |X' - X| <= (I - G)^-1 |A^-1| (|H| + E |X|); with |X| <= |X~| + d this is (I - G) d <= w + G d, w the right-hand
side for X~, and I - 2 G has a non-negative inverse while its row sums of G stay below 1/2.

    |A^-1| <= (I - S)^-1 |R|,   S >= |I - R A|.

Source: Rump, Verification methods, Acta Numerica 19 (2010), section 10.5; Higham, Accuracy and Stability of Numerical
Algorithms (2nd ed.), sections 7.1 and 14.1. S is computed in float64 and inflated by its own rounding.
"""

from __future__ import annotations

import torch

from kernels_core.enclosure import Enclosure

Tensor = torch.Tensor
GROWN = 1 + 2.0**-40  # the float64 rounding of short chains of products of non-negative matrices, up to 2^10 rows
U64 = 2.0**-53


def transposed(x: Tensor) -> Tensor:
    """Return the matrices transposed."""
    return x.transpose(-2, -1)


def largest(x: Tensor) -> Tensor:
    """Return the largest element of each matrix, shape (..., 1, 1)."""
    return x.amax((-2, -1), keepdim=True) if x.shape[-1] and x.shape[-2] else x.new_zeros((*x.shape[:-2], 1, 1))


def resolvent(g: Tensor, w: Tensor) -> Tensor:
    """Return an upper bound on (I - G)^-1 W for non-negative matrices: W + G W + G^2 W + ..., inf where it may diverge.

    G^2 W + G^3 W + ... <= (G 1) max(G W) / (1 - |G|) column by column, |G| the largest row sum.
    """
    if not g.shape[-1]:
        return w
    sums = g.sum(-1, keepdim=True)
    norm = sums.amax(-2, keepdim=True) * GROWN
    first = g @ w
    bound = w + first + sums * (first.amax(-2, keepdim=True) / (1 - norm))
    return torch.where(norm < 0.5, bound * GROWN, torch.inf)


def inverse_upper(a: Tensor) -> Tensor:
    """Return an upper bound on |A^-1| for the float64 matrices A themselves, inf where none is found."""
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    r = torch.linalg.inv_ex(torch.where(a.isfinite().all(-1).all(-1)[..., None, None], a, identity)).inverse
    rounding = (a.shape[-1] + 2) * U64
    defect = ((identity - r @ a).abs() + (identity + r.abs() @ a.abs()) * rounding) * GROWN
    return known(resolvent(defect, r.abs()), a)


def known(upper: Tensor, a: Tensor) -> Tensor:
    """Return an upper bound without NaN, inf for matrices with an element that is not finite."""
    finite = a.isfinite().all(-1).all(-1)[..., None, None] if a.numel() else torch.ones((), dtype=torch.bool)
    return torch.where(upper.isnan() | ~finite, torch.inf, upper)


def solution(a: Tensor, error: Tensor, x: Tensor, more: Tensor | None) -> Enclosure:
    """Return the enclosure of every X' with (A + F) X' = B + H, |F| <= error, |H| <= more, around the solution x."""
    inverse = inverse_upper(a)
    right = error @ x.abs() if more is None else error @ x.abs() + more
    return settled(x, resolvent(2 * (inverse @ error) * GROWN, inverse @ right))


def settled(mid: Tensor, bound: Tensor) -> Enclosure:
    """Return an enclosure in which what is not finite is unknown."""
    bound = torch.where(bound.isnan() | ~mid.isfinite(), torch.inf, bound.double() * GROWN)
    return Enclosure(torch.where(mid.isfinite(), mid, torch.nan), bound)


def elimination_error(a: Tensor, n: float, u: float) -> Tensor:
    """Return the backward error of elimination of A or of A^T, whichever is contiguous in the order of LAPACK."""
    return torch.maximum(_elimination_error(a, n, u), transposed(_elimination_error(transposed(a), n, u)))


def _elimination_error(a: Tensor, n: float, u: float) -> Tensor:
    """Return the backward error of elimination: |F| <= 3 n u P |L| |U|, doubled.

    Theorem 9.4 (Higham): the computed solution solves (A + F) x = b with |F| <= gamma_{3n} |L| |U| for the rows in the
    order of the pivots. |L| |U| is taken from float64 and doubled, for elimination by Gauss and Jordan (section 14.4).
    Where a multiplier comes near 1, roundings may choose other pivots: there each column's largest element stands for
    all its rows.
    """
    order, lower, upper = torch.linalg.lu(torch.where(a.isfinite(), a, 0.0))
    size = order @ (lower.abs() @ upper.abs())
    if a.numel():
        close = (torch.tril(lower.abs(), -1) > 1 - 2.0**-8).any(-1).any(-1)[..., None, None]
        size = torch.where(close, size.amax(-2, keepdim=True), size)
    error: Tensor = (2 * 3 * n * u / (1 - 3 * n * u)) * size * GROWN
    return error
