"""Inverses and solutions of linear systems: what any backward stable algorithm may return.

The computed X' of A X = B solves a system with A perturbed by the algorithm's backward error E (inverses.py), or is
as close as if it did: an inverse from a left residual, |X' A - I| <= |X'| E (method B, Higham section 14.3), obeys the
same forward bound |A^-1| E |X|. Triangular systems: theorem 8.5, |F| <= gamma_n |T|, and gamma_{n+1} on the
diagonal: BLAS kernels multiply by 1 / t_kk, which lemma 8.4 counts as one rounding more of t_kk alone. Cholesky:
theorem 10.4, |F| <= gamma_{3n+1} |L| |L^T|, of which 2 n + 2 are the two substitutions with reciprocals. Underflow adds
eta per product, as in any sum.

A matrix whose bound reaches a singular one leaves its solutions unconstrained.

The midpoint is float64's own result of the same operation, never that of a general elimination where the operation
solves with triangles: where a structural zero leaves no room in |T| |X|, another algorithm's rounding has none either.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.inverses import GROWN, elimination_error, solution, transposed
from kernels_core.rules.matrices import (
    exact_matrix,
    inverse_of,
    matrix_rule,
    parts_of,
    permuted,
    product_of,
    solve_of,
    transpose_of,
    triangle_of,
    unsaid,
    with_vector,
)
from kernels_core.rules.record import Family

Tensor = torch.Tensor


def _solved(local: Local, x: Tensor, a: Tensor, error: Tensor, b: Enclosure, left: bool = True) -> Enclosure:
    """Return X of A X = B (or X A = B) around float64's x, `error` bounding all that may be added to A."""
    if not left:
        value = _solved(local, transposed(x), transposed(a), transposed(error), _transpose(b))
        return _transpose(value)
    value = solution(a, error, x, None if b.bound is None else b.bound.expand(b.mid.shape))
    return Enclosure(value.mid, value.bound_or_zero() + local.eta)


def _transpose(value: Enclosure) -> Enclosure:
    return Enclosure(
        transposed(value.mid), None if value.bound is None else transposed(value.bound.expand(value.shape))
    )


def solve_ex(local: Local, a: Enclosure, b: Enclosure, *, left: bool = True, check_errors: bool = False) -> Any:
    """Return the solution, the factors (nothing is said of them here), pivots and info."""
    mid, bound = parts_of(a)
    vector = b.mid.dim() == 1 or (a.mid.dim() - 1 == b.mid.dim() and b.mid.shape == a.mid.shape[:-1])
    right = Enclosure(*(None if t is None else t.unsqueeze(-1) for t in parts_of(b))) if vector else b
    x = torch.linalg.solve_ex(mid, right.mid, left=left).result
    value = _solved(local, x, mid, bound + elimination_error(mid, mid.shape[-1], local.u_acc), right, left)
    if vector:
        value = Enclosure(*(None if t is None else t.squeeze(-1) for t in (value.mid, value.bound)))  # type: ignore[arg-type]
    return value, *unsaid(local, 1, value)


def inv_ex(local: Local, a: Enclosure, *, check_errors: bool = False) -> Any:
    """Return the inverse, and info."""
    mid, bound = parts_of(a)
    identity = Enclosure(torch.eye(mid.shape[-1], dtype=torch.float64, device=mid.device).expand(mid.shape))
    x = torch.linalg.inv_ex(mid).inverse
    value = _solved(local, x, mid, bound + elimination_error(mid, mid.shape[-1], local.u_acc), identity)
    return value, *unsaid(local, 1, value)


def _triangle(a: Enclosure, upper: bool, unit: bool) -> tuple[Tensor, Tensor]:
    mid, bound = parts_of(a)

    def cut(t: Tensor, k: int) -> Tensor:
        return torch.triu(t, k) if upper else torch.tril(t, -k)

    if not unit:
        return cut(mid, 0), cut(bound, 0)
    return cut(mid, 1) + torch.eye(mid.shape[-1], dtype=mid.dtype, device=mid.device), cut(bound, 1)


def _gamma(n: float, u: float) -> float:
    return n * u / (1 - n * u) * GROWN


def _substitution_error(local: Local, triangle: Tensor, unit: bool) -> Tensor:
    """Return the backward error of a substitution: gamma_n |T|, gamma_{n+1} on a diagonal that is divided by."""
    n, size = triangle.shape[-1], triangle.abs()
    error = size * _gamma(n, local.u_acc)
    if not unit:
        error.diagonal(dim1=-2, dim2=-1).copy_(size.diagonal(dim1=-2, dim2=-1) * _gamma(n + 1, local.u_acc))
    return error


def solve_triangular(
    local: Local, a: Enclosure, b: Enclosure, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Enclosure:
    """Return X of T X = B or X T = B."""
    mid, bound = _triangle(a, upper, unitriangular)
    x = torch.linalg.solve_triangular(mid, b.mid, upper=upper, left=left)
    return _solved(local, x, mid, bound + _substitution_error(local, mid, unitriangular), b, left)


def triangular_solve(
    local: Local, b: Enclosure, a: Enclosure, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Return X of T X = B, and T as given."""
    mid, bound = _triangle(a, upper, unitriangular)
    error = bound + _substitution_error(local, mid, unitriangular)
    if transpose:
        mid, error, upper = transposed(mid), transposed(error), not upper
    return _solved(local, torch.linalg.solve_triangular(mid, b.mid, upper=upper), mid, error, b), a


def lu_solve(
    local: Local, lu: Enclosure, pivots: Enclosure, b: Enclosure, *, left: bool = True, adjoint: bool = False
) -> Enclosure:
    """Return X of P L U X = B (or the transposed or mirrored system)."""
    (lower, lower_error), (upper, upper_error) = _triangle(lu, False, True), _triangle(lu, True, False)
    rounding = _gamma(3 * lower.shape[-1], local.u_acc)
    size = (lower.abs() + lower_error) @ (upper.abs() + upper_error)
    error = lower_error @ (upper.abs() + upper_error) + lower.abs() @ upper_error + size * rounding
    places = permuted(pivots.mid, lower.shape[-2])
    back = torch.argsort(places, -1).unsqueeze(-1)
    matrix, error = (t.gather(-2, back.expand(t.shape)) for t in (lower @ upper, error))
    error = error + size.gather(-2, back.expand(size.shape)) * (2 * size.shape[-1] * 2.0**-53)  # of lower @ upper here
    if pivots.unsure is not None:
        error = torch.where(pivots.unsure.any(-1)[..., None, None], torch.inf, error)
    if adjoint:
        matrix, error = transposed(matrix), transposed(error)
    order = pivots.mid.clamp(min=1)  # where nothing is said of them: the bound is then infinite
    x = torch.linalg.lu_solve(lu.mid, order, b.mid, left=left, adjoint=adjoint)
    return _solved(local, x, matrix, error, b, left)


def _factored(local: Local, factor: Enclosure, upper: bool) -> tuple[Tensor, Tensor]:
    mid, bound = _triangle(factor, upper, False)
    if upper:
        mid, bound = transposed(mid), transposed(bound)
    size = mid.abs() + bound
    rounding = _gamma(3 * mid.shape[-1] + 1, local.u_acc) + 2 * mid.shape[-1] * 2.0**-53  # of the product here
    error = bound @ transposed(size) + mid.abs() @ transposed(bound) + (size @ transposed(size)) * rounding
    return mid @ transposed(mid), error


def cholesky_solve(local: Local, b: Enclosure, factor: Enclosure, upper: bool = False) -> Enclosure:
    """Return X of L L^T X = B."""
    x = torch.cholesky_solve(b.mid, factor.mid, upper)
    return _solved(local, x, *_factored(local, factor, upper), b)


def cholesky_inverse(local: Local, factor: Enclosure, upper: bool = False) -> Enclosure:
    """Return (L L^T)^-1."""
    matrix, error = _factored(local, factor, upper)
    identity = torch.eye(matrix.shape[-1], dtype=torch.float64, device=matrix.device).expand(matrix.shape)
    x = torch.cholesky_inverse(factor.mid, upper)
    return _solved(local, x, matrix, error, Enclosure(identity))


def _exact_solve(call: Any, a: Any, b: Any) -> Any:
    if call.step.kwargs.get("left", True):
        return solve_of(a, b)
    return transpose_of(solve_of(transpose_of(a), transpose_of(b)))


def _exact_triangular(call: Any, a: Any, b: Any) -> Any:
    options = call.step.kwargs
    return _exact_solve(call, triangle_of(a, options["upper"], options.get("unitriangular", False)), b)


def _exact_triangular_old(call: Any, b: Any, a: Any) -> Any:
    step = call.step
    matrix = triangle_of(a, step.argument(2, "upper", True), step.argument(4, "unitriangular", False))
    return solve_of(transpose_of(matrix) if step.argument(3, "transpose", False) else matrix, b), a


def _exact_lu_solve(call: Any, lu: Any, pivots: Any, b: Any) -> Any:
    places = permuted(torch.tensor([int(p) for p in pivots.reshape(-1)]), lu.shape[0]).tolist()
    product = product_of(triangle_of(lu, False, True), triangle_of(lu, True, False))
    matrix = product.copy()
    matrix[places] = product
    return _exact_solve(call, transpose_of(matrix) if call.step.kwargs.get("adjoint", False) else matrix, b)


def _exact_factored(call: Any, factor: Any, upper: bool) -> Any:
    lower = transpose_of(triangle_of(factor, True, False)) if upper else triangle_of(factor, False, False)
    return product_of(lower, transpose_of(lower))


def _exact_cholesky_solve(call: Any, b: Any, factor: Any) -> Any:
    return solve_of(_exact_factored(call, factor, call.step.argument(2, "upper", False)), b)


def _exact_cholesky_inverse(call: Any, factor: Any) -> Any:
    return inverse_of(_exact_factored(call, factor, call.step.argument(1, "upper", False)))


FAMILY = Family()
FAMILY.add(
    matrix_rule("aten._linalg_solve_ex.default", solve_ex, exact_matrix(_exact_solve, with_vector), with_vector),
    matrix_rule("aten.linalg_inv_ex.default", inv_ex, exact_matrix(lambda call, a: inverse_of(a))),
    matrix_rule("aten.linalg_solve_triangular.default", solve_triangular, exact_matrix(_exact_triangular)),
    matrix_rule("aten.triangular_solve.default", triangular_solve, exact_matrix(_exact_triangular_old)),
    matrix_rule("aten.linalg_lu_solve.default", lu_solve, exact_matrix(_exact_lu_solve)),
    matrix_rule("aten.cholesky_solve.default", cholesky_solve, exact_matrix(_exact_cholesky_solve)),
    matrix_rule("aten.cholesky_inverse.default", cholesky_inverse, exact_matrix(_exact_cholesky_inverse)),
)
