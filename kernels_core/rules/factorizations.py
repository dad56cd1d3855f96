"""Triangular and orthogonal factors of a perturbed matrix, element by element.

Each factorisation of A + F is that of A times factors near the identity. With |F| <= E:

    LU        L' = L (I + P), U' = (I + S) U, P strictly lower, S upper:  P + S + P S = L^-1 F U^-1
    Cholesky  L' = L (I + P), P lower:                            P + P^T + P P^T = L^-1 F L^-T
    QR        R' = (I + S) R, S upper:     S + S^T + S^T S = Q^T F R^-1 + (..)^T + R^-T F^T F R^-1

Where the right-hand sides are at most W elementwise, w the largest element and s the size, 16 s w < 1 gives
|P|, |S| <= the triangle of W (half of it, and half the diagonal, where the same factor stands twice) + 4 s w^2: this
box is mapped into itself by T -> W + |P| |S|, Brouwer's theorem gives factors in it, and the factorisation is unique
(Sun, BIT 31 (1991); Stewart, SIAM J. Matrix Anal. 14 (1993), for the first-order terms).
"""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.exact_factors import exact_cholesky, exact_lu, exact_lu_factor, exact_unpack
from kernels_core.rules.inverses import GROWN, inverse_upper, largest, settled, transposed
from kernels_core.rules.matrices import certain_integers, exact_matrix, matrix_rule, parts_of, permuted
from kernels_core.rules.record import Family

Tensor = torch.Tensor


def eye(like: Tensor, n: int) -> Tensor:
    """Return identities for the batch of `like`."""
    return torch.eye(n, dtype=like.dtype, device=like.device).expand(*like.shape[:-2], n, n)


def factor_box(w: Tensor, size: int) -> Tensor:
    """Return W + 4 s w^2, inf where 16 s w >= 1: the box of the module."""
    top = largest(w)
    return torch.where(16 * size * top < 1, (w + 4 * size * top * top) * GROWN, torch.inf)


def bounded_product(a: Tensor, b: Tensor) -> Tensor:
    """Return A B for non-negative matrices, inf for a batch with an inf in it (0 inf counts as inf)."""
    found = a @ b
    return torch.where(found.isnan(), torch.inf, found) * GROWN


def _embedded(x: Tensor, size: int) -> Tensor:
    """Return the matrix in the corner of a square one, with a unit diagonal in the rows and columns that are added."""
    rows, columns = x.shape[-2:]
    full = eye(x, size).clone()
    full[..., :rows, :columns] = x
    return full


def _lu(local: Local, a: Enclosure) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the compact factors, their bound, the pivots and whether these may be others.

    Theorem 9.3 (Higham): the computed factors are those of A + F with |F| <= gamma_n |L| |U|, n the number of columns
    of L. LAPACK multiplies by the reciprocal of the pivot, one rounding more of u_jj: j + 1 in column j below the
    diagonal, which is above n for the last column of a tall matrix only. The order of the rows is certain where no
    multiplier reaches 1, for the pivot of each column is then the largest whatever the roundings.
    """
    mid, bound = parts_of(a)
    rows, columns = mid.shape[-2:]
    size, short = max(rows, columns), min(rows, columns)
    compact, pivots, _ = torch.linalg.lu_factor_ex(mid)
    lower = torch.tril(compact[..., :short], -1) + torch.eye(rows, short, dtype=mid.dtype, device=mid.device)
    upper = torch.triu(compact[..., :short, :])
    places = permuted(pivots, rows).unsqueeze(-1).expand(mid.shape)
    terms = min(short + 1, rows)
    gamma = terms * local.u_acc / (1 - terms * local.u_acc) * GROWN
    error = bound.gather(-2, places) + lower.abs() @ upper.abs() * gamma
    left, right = _embedded(lower, size), _embedded(upper, size)
    w = torch.zeros_like(left)
    w[..., :rows, :columns] = error
    box = factor_box(bounded_product(bounded_product(inverse_upper(left), w), inverse_upper(right)), size)
    lower_error = bounded_product(left.abs(), torch.tril(box, -1))[..., :rows, :columns]
    upper_error = bounded_product(torch.triu(box), right.abs())[..., :rows, :columns]
    found = torch.where(torch.ones_like(mid, dtype=torch.bool).tril(-1), lower_error, upper_error)
    below = torch.tril(compact.abs() + found, -1)
    ambiguous = (below >= 1).any(-1).any(-1) | ~found.isfinite().all(-1).all(-1)
    found = torch.where(ambiguous[..., None, None], torch.inf, found) + local.eta
    return compact, found, pivots, ambiguous


def lu_factor(local: Local, a: Enclosure, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Return the compact factors, the pivots and info."""
    compact, bound, pivots, ambiguous = _lu(local, a)
    info = torch.zeros(compact.shape[:-2], dtype=torch.int32, device=compact.device)
    return settled(compact, bound), certain_integers(pivots, ambiguous.unsqueeze(-1)), certain_integers(info, ambiguous)


def lu(local: Local, a: Enclosure, *, pivot: bool = True) -> Any:
    """Return P, L and U."""
    compact, bound, pivots, ambiguous = _lu(local, a)
    return _unpacked(compact, bound, pivots, ambiguous)


def lu_unpack(
    local: Local, data: Enclosure, pivots: Enclosure, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """Return P, L and U from compact factors."""
    unsure = torch.zeros((), dtype=torch.bool) if pivots.unsure is None else pivots.unsure.any(-1)
    value = _unpacked(*parts_of(data), pivots.mid, unsure)
    nothing = Enclosure(torch.zeros(0, dtype=torch.float64))
    return (value[0] if unpack_pivots else nothing, *(value[1:] if unpack_data else (nothing, nothing)))


def _unpacked(compact: Tensor, bound: Tensor, pivots: Tensor, ambiguous: Tensor) -> tuple[Enclosure, ...]:
    rows, columns = compact.shape[-2:]
    short = min(rows, columns)
    places = permuted(pivots[..., :short], rows)
    order = torch.nn.functional.one_hot(places, rows).to(torch.float64).transpose(-2, -1) if rows else eye(compact, 0)
    unknown = torch.where(ambiguous[..., None, None], torch.inf, 0.0).expand(order.shape)
    diagonal = torch.eye(rows, short, dtype=compact.dtype, device=compact.device)
    lower = Enclosure(torch.tril(compact[..., :short], -1) + diagonal, torch.tril(bound[..., :short], -1))
    upper = Enclosure(torch.triu(compact[..., :short, :]), torch.triu(bound[..., :short, :]))
    return settled(order, unknown), *(settled(*parts_of(v)) for v in (lower, upper))


def cholesky_ex(local: Local, a: Enclosure, *, upper: bool = False, check_errors: bool = False) -> Any:
    """Return the factor and info."""
    value = cholesky(local, a, upper)
    info = torch.zeros(value.shape[:-2], dtype=torch.int32, device=value.mid.device)
    return value, certain_integers(info, ~value.bound_or_zero().isfinite().all(-1).all(-1))


def cholesky(local: Local, a: Enclosure, upper: bool = False) -> Enclosure:
    """Return the factor of the matrix whose lower (or upper) triangle is given.

    Theorem 10.3 (Higham): the computed factor is that of A + F with |F| <= gamma_{n+1} |L| |L^T|.
    """
    mid, bound = (_symmetric(t, upper) for t in parts_of(a))
    n = mid.shape[-1]
    lower = torch.linalg.cholesky_ex(mid).L
    failed = (~lower.isfinite()).any(-1).any(-1) | (lower.diagonal(dim1=-2, dim2=-1) <= 0).any(-1)
    lower = torch.where(failed[..., None, None] | torch.linalg.cholesky_ex(mid).info.bool()[..., None, None],
                        torch.nan, lower)  # fmt: skip
    error = (
        bound + lower.abs() @ transposed(lower).abs() * ((n + 1) * local.u_acc / (1 - (n + 1) * local.u_acc)) * GROWN
    )
    inverse = inverse_upper(lower)
    w = bounded_product(bounded_product(inverse, error), transposed(inverse))
    box = torch.tril(factor_box(w, n))
    half = torch.where(torch.eye(n, dtype=torch.bool, device=mid.device), (box + 4 * n * largest(w) ** 2) / 2, box)
    found = bounded_product(lower.abs(), half)
    found = torch.where(torch.ones_like(found, dtype=torch.bool).tril(), found + local.eta, 0.0)
    value = settled(lower, torch.where(lower.isnan(), torch.inf, found))
    return Enclosure(transposed(value.mid), transposed(value.bound_or_zero())) if upper else value


def _symmetric(x: Tensor, upper: bool) -> Tensor:
    half = torch.triu(x) if upper else torch.tril(x)
    return half + transposed(half) - torch.diag_embed(x.diagonal(dim1=-2, dim2=-1))


FAMILY = Family()
FAMILY.add(
    matrix_rule("aten.linalg_lu_factor_ex.default", lu_factor, exact_matrix(exact_lu_factor)),
    matrix_rule("aten.linalg_lu.default", lu, exact_matrix(exact_lu)),
    matrix_rule("aten.lu_unpack.default", lu_unpack, exact_matrix(exact_unpack)),
    matrix_rule("aten.linalg_cholesky_ex.default", cholesky_ex, exact_matrix(exact_cholesky)),
    matrix_rule("aten.cholesky.default", cholesky, exact_matrix(exact_cholesky)),
)
