"""Linear systems and Cholesky factors in double-double, from residuals.

A solution. With C close to A^-1 and G = I - C A, ||G|| < 1, A^-1 = (I - G)^-1 C, so that for any Y

    A^-1 B - Y = (I - G)^-1 C R,   R = B - A Y
    |A^-1 B - Y| <= d + g / (1 - g) max d,   d = |C| |R|,  g = the largest row sum of |G|,

the maximum over a column. Y is refined by adding C R until R is what double-double leaves; the radii of A and B are in
those of R and G. Source of the form: Rump, Verification methods, Acta Numerica 19 (2010), section 10; derived here.

A Cholesky factor. For any L with positive diagonal and H = L^-1 (A - L L^T) L^-T, chol(A) = L chol(I + H). Write
chol(I + H) = I + F; then F + F^T = H - F F^T, so F = P(H - F F^T) with P the lower triangle and half the diagonal, and
|P(S)|_F <= |S|_F / sqrt 2 for symmetric S. For h = |H|_F <= 1/4 the map F -> P(H - F F^T) takes the ball |F|_F <= h
into itself, (h + h^2) / sqrt 2 <= h, and chol(I + tH) moves continuously from F = 0: |F|_F <= h. So

    |chol(A) - L| in row i <= |row i of L|_2 h.

L is refined by L + L P(H).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels_core.doubles.arithmetic import add, subtract
from kernels_core.doubles.exact_sums import matmul
from kernels_core.doubles.number import ETA, INFLATE, DoubleDouble, U, exactly
from kernels_core.doubles.record import fine

Tensor = torch.Tensor
_REFINEMENTS = 4  # each takes away as many bits as float64's own solution is right to


def _whole(value: Any) -> DoubleDouble:
    return fine(value).each(lambda part: part)


def _transposed(a: DoubleDouble) -> DoubleDouble:
    return a.each(lambda part: part.mT)


def _abs_product_upper(a: Tensor, b: Tensor) -> Tensor:
    """Return an upper bound of a b for matrices of magnitudes."""
    n = a.shape[-1]
    return (a @ b) * ((1 + 2 * (n + 2) * U) * INFLATE) + n * ETA


def _abs_upper(a: DoubleDouble) -> Tensor:
    return a.abs_upper() * INFLATE


def _identity(a: DoubleDouble) -> DoubleDouble:
    eye = torch.eye(a.shape[-1], dtype=torch.float64, device=a.hi.device)
    return exactly(eye.expand(a.shape)).each(lambda part: part)


def _distance(nearly: Tensor, a: DoubleDouble) -> Tensor:
    """Return an upper bound of |I - C A|."""
    return _abs_upper(subtract(_identity(a), matmul(exactly(nearly), a)))


def solved(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return the solution of A X = B for matrices or batches of them."""
    nearly = torch.linalg.inv_ex(a.hi).inverse
    start = nearly @ b.hi
    found = exactly(start).each(lambda part: part)
    for _ in range(_REFINEMENTS):
        rest = subtract(b, matmul(a, found))
        moved = add(found, exactly(nearly @ rest.hi))
        found = DoubleDouble(moved.hi, moved.lo, torch.zeros_like(moved.hi))
    rest = subtract(b, matmul(a, found))
    own = _abs_product_upper(nearly.abs(), _abs_upper(rest))
    share = _distance(nearly, a).sum(-1).amax(-1)[..., None, None] * INFLATE
    further = torch.where(share < 0.5, share / (1 - share), torch.inf) * own.amax(-2, keepdim=True)
    return DoubleDouble(found.hi, found.lo, (own + further) * INFLATE)


def _half_lower(h: Tensor) -> Tensor:
    return h.tril(-1) + torch.diag_embed(h.diagonal(dim1=-2, dim2=-1) / 2)


def factored(a: DoubleDouble) -> DoubleDouble:
    """Return the lower Cholesky factor of symmetric matrices."""
    low = exactly(torch.linalg.cholesky_ex(a.hi).L).each(lambda part: part)
    for _ in range(_REFINEMENTS):
        inverse = torch.linalg.inv_ex(low.hi).inverse
        gap = subtract(a, matmul(low, _transposed(low)))
        moved = add(low, exactly(low.hi @ _half_lower(inverse @ gap.hi @ inverse.mT)))
        low = DoubleDouble(moved.hi.tril(), moved.lo.tril(), torch.zeros_like(moved.hi))
    inverse = torch.linalg.inv_ex(low.hi).inverse
    size, rest = inverse.abs(), _abs_upper(subtract(a, matmul(low, _transposed(low))))
    share = _norm(_distance(inverse, low))
    h = _norm(_abs_product_upper(_abs_product_upper(size, rest), size.mT)) / (1 - share) ** 2 * INFLATE
    positive = (low.hi.diagonal(dim1=-2, dim2=-1) > 0).all(-1)[..., None, None]
    known = (share < 0.5) & (h <= 0.25) & positive
    rows = torch.linalg.vector_norm(_abs_upper(low), dim=-1, keepdim=True) * (1 + 2 * low.shape[-1] * U)
    rad = torch.where(known, rows * h * INFLATE, torch.inf).expand(low.shape)
    return DoubleDouble(low.hi, low.lo, rad.tril())


def _norm(matrix: Tensor) -> Tensor:
    """Return an upper bound of the Frobenius norm, kept as a matrix of one element."""
    size = matrix.shape[-1]
    norm: Tensor = torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True)
    return norm * (1 + 2 * size * size * U) * INFLATE + size * 2.0**-500  # squares below the normal range


# By ATen's names ------------------------------------------------------------------------------------------------------


def _from(a: DoubleDouble, b: DoubleDouble, left: bool) -> DoubleDouble:
    return solved(a, b) if left else _transposed(solved(_transposed(a), _transposed(b)))


def solve(a: Any, b: Any, *, left: bool = True, **_: Any) -> DoubleDouble:
    """Return X of A X = B or X A = B, or of a vector."""
    matrix, right = _whole(a), _whole(b)
    vector = len(right.shape) == 1 or (len(matrix.shape) - 1 == len(right.shape) and right.shape == matrix.shape[:-1])
    found = _from(matrix, right.unsqueeze(-1) if vector else right, left)
    return found.each(lambda part: part.squeeze(-1)) if vector else found


def inverse(a: Any, **_: Any) -> DoubleDouble:
    """Return the inverse."""
    matrix = _whole(a)
    return solved(matrix, _identity(matrix))


def _triangle(a: Any, upper: bool, unit: bool = False) -> DoubleDouble:
    found = _whole(a).each(lambda part: part.triu(int(unit)) if upper else part.tril(-int(unit)))
    return add(found, _identity(found)) if unit else found


def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> DoubleDouble:
    """Return X of T X = B or X T = B."""
    return _from(_triangle(a, upper, unitriangular), _whole(b), left)


def cholesky(a: Any, upper: bool = False, **_: Any) -> DoubleDouble:
    """Return the Cholesky factor of the matrix that one triangle of A stands for."""
    half = _triangle(a, upper)
    low = _transposed(half) if upper else half
    symmetric = low.each(lambda part: part + part.tril(-1).mT)
    found = factored(symmetric)
    return _transposed(found) if upper else found


def _product(factor: Any, upper: bool) -> DoubleDouble:
    low = _transposed(_triangle(factor, True)) if upper else _triangle(factor, False)
    return matmul(low, _transposed(low))


def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> DoubleDouble:
    """Return X of L L^T X = B."""
    return solved(_product(factor, upper), _whole(b))


def cholesky_inverse(factor: Any, upper: bool = False) -> DoubleDouble:
    """Return (L L^T)^-1."""
    matrix = _product(factor, upper)
    return solved(matrix, _identity(matrix))


EVALUATIONS: Mapping[str, Callable[..., DoubleDouble]] = {
    "aten._linalg_solve_ex.default": solve,
    "aten.linalg_inv_ex.default": inverse,
    "aten.linalg_solve_triangular.default": solve_triangular,
    "aten.linalg_cholesky_ex.default": cholesky,
    "aten.cholesky.default": cholesky,
    "aten.cholesky_solve.default": cholesky_solve,
    "aten.cholesky_inverse.default": cholesky_inverse,
}
