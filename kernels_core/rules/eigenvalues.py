"""Eigenvalues and eigenvectors of symmetric matrices, singular values and vectors, from the residuals of float64's own.

What is granted is a reduction by reflections from both sides, and rotations: each reflection of length l errs by
(6 l + 20) u of the Frobenius norm (orthogonal.py) and acts from both sides; the rotations of two sweeps for each value,
in at most 5 n stages of 6 u from either side (Higham, Accuracy and Stability of Numerical Algorithms, lemmas 19.3 and
19.9). So the computed values are those of A + F, |F|_F <= c(n) u |A|_F, c(n) = sum over l <= n of 2 (6 l + 20) + 60 n,
and the vectors as formed err by c(n) u. Divide and conquer, Jacobi's method and the polar decomposition do better.
How far that moves values and vectors is in spectra.py. The sign of a vector is the algorithm's choice (free_signs.py).
Columns of a complete U or V beyond those of A are its choice altogether: they are unknown.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.exact_spectra import exact_eigh, exact_svd
from kernels_core.rules.inverses import settled, transposed
from kernels_core.rules.matrices import exact_matrix, matrix_rule, parts_of
from kernels_core.rules.record import Family
from kernels_core.rules.spectra import Moved, eigenvectors_moved, frobenius, singular_vectors_moved

Tensor = torch.Tensor


def spectral_constant(*sizes: int) -> float:
    """Return c(n) for the largest dimension."""
    n = max(sizes)
    return float(6 * n * n + 46 * n + 60 * n)


def finite(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the matrices, zero where one has an element that is not finite, and where that is (..., 1, 1)."""
    bad = (~a.isfinite()).flatten(-2).any(-1)[..., None, None] if a.numel() else a.new_zeros((), dtype=torch.bool)
    return torch.where(bad, 0.0, a), bad


def eigh(local: Local, a: Enclosure, UPLO: str = "L", compute_v: bool = True) -> Any:
    """Return the eigenvalues in ascending order, and the eigenvectors; of A only the triangle named is read."""
    mid, bad = finite(a.mid)
    mid, bound = (symmetric(t, UPLO == "U") for t in (mid, parts_of(a)[1]))
    values, x = torch.linalg.eigh(mid)
    c = spectral_constant(mid.shape[-1]) * local.u_acc
    moved = eigenvectors_moved(mid, bound, values, x, frobenius(mid) * c + local.eta, c)
    unknown = torch.where(bad, torch.inf, 0.0)
    result = settled(values, moved.values + unknown.squeeze(-1) + local.eta)
    if not compute_v:
        return result, Enclosure(torch.zeros(0, dtype=torch.float64))
    signs = local.signs(x.shape[-1])
    return result, settled(x * signs, moved.vectors[0] + unknown + local.eta)


def symmetric(x: Tensor, upper: bool) -> Tensor:
    """Return the symmetric matrix whose lower (or upper) triangle is given."""
    half = torch.triu(x) if upper else torch.tril(x)
    return half + transposed(torch.triu(x, 1) if upper else torch.tril(x, -1))


def singular(local: Local, a: Enclosure) -> tuple[Tensor, Tensor, Tensor, Moved, Tensor]:
    """Return float64's U, S, V and how far they may move, and what is unknown (..., 1, 1)."""
    mid, bad = finite(a.mid)
    u, s, vh = torch.linalg.svd(mid, full_matrices=False)
    c = spectral_constant(*mid.shape[-2:]) * local.u_acc
    size = frobenius(mid) * c + local.eta
    moved = singular_vectors_moved(mid, parts_of(a)[1], u, s, transposed(vh), size, c)
    return u, s, transposed(vh), moved, torch.where(bad, torch.inf, 0.0)


def svd(
    local: Local, a: Enclosure, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> Any:
    """Return U, S and Vh."""
    u, s, v, moved, unknown = singular(local, a)
    values = settled(s, moved.values + unknown.squeeze(-1) + local.eta)
    if not compute_uv:
        empty = Enclosure(torch.zeros(0, dtype=torch.float64))
        return empty, values, empty
    signs = local.signs(s.shape[-1])
    left, right = (settled(x * signs, e + unknown + local.eta) for x, e in zip((u, v), moved.vectors, strict=True))
    if full_matrices:
        left, right = _completed(left), _completed(right)
    return left, values, Enclosure(transposed(right.mid), transposed(right.bound_or_zero()))


def _completed(value: Enclosure) -> Enclosure:
    """Return a square matrix whose further columns are unknown."""
    rows, columns = value.shape[-2:]
    shape = (*value.shape[:-1], rows - columns)
    mid = torch.cat((value.mid, torch.zeros(shape, dtype=torch.float64)), -1)
    return Enclosure(mid, torch.cat((value.bound_or_zero(), torch.full(shape, torch.inf, dtype=torch.float64)), -1))


FAMILY = Family()
FAMILY.add(
    matrix_rule("aten._linalg_eigh.default", eigh, exact_matrix(exact_eigh)),
    matrix_rule("aten._linalg_svd.default", svd, exact_matrix(exact_svd)),
)
