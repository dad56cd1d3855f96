"""What a perturbation of a matrix does to its singular values and vectors, and to its eigenvalues and eigenvectors.

A symmetric, Lambda and X its computed eigenvalues and vectors, so that X^-1 A X = Lambda + X^-1 R with the residual
R = A X - X Lambda. For A + F with |F| <= B elementwise plus something of norm at most e,

    |X^-1 (A + F - X Lambda X^-1) X| <= W = |X^T| B |X| + e + |X^T| |R|,     omega >= its 2-norm.

Values: Weyl, |lambda' - lambda| <= omega. Vectors: lambda_j has the distance gap_ij from the others, the least is g.
The vector of A + F is X z with z = e_j + q, q_j = 0, where (lambda_i - lambda_j - (W z)_j) q_i = -(W z)_i. Where 8
omega <= g, the box

    |q|_2 <= t = 2 omega / g,     |q_i| <= (W_ij + omega t) / (gap_ij - omega (1 + t))

is mapped into itself, for omega (1 + t) / (g - omega (1 + t)) <= t; Brouwer's theorem gives an eigenvector in it, whose
value is within W_jj + omega t <= 5/4 omega of lambda_j: only the j-th one of A + F is there. Where 8 omega > g nothing
is said of the vector. Singular vectors are those of ((0, A), (A^T, 0)), whose values are +-sigma, and 0 where A is not
square; the part of q in the complement of the smaller space is bounded by its norm.

Source: Stewart and Sun, Matrix Perturbation Theory (1990), theorems IV.4.11 and V.2.7 for the first-order terms; Rump,
Verification methods, Acta Numerica 19 (2010), section 13, for the residual.
"""

from __future__ import annotations

import dataclasses

import torch

from kernels_core.rules.inverses import GROWN, U64, transposed

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Moved:
    """How far values and vectors move: `values` (..., k), `vectors` as the matrices of vectors (inf: unknown)."""

    values: Tensor
    vectors: tuple[Tensor, ...]


def frobenius(x: Tensor) -> Tensor:
    """Return an upper bound on the Frobenius norm of each matrix, shape (..., 1, 1)."""
    return x.square().sum((-2, -1), keepdim=True).sqrt() * GROWN


def product_rounding(a: Tensor, b: Tensor) -> Tensor:
    """Return an upper bound on the float64 rounding of A B."""
    return (a.abs() @ b.abs()) * ((a.shape[-1] + 2) * U64 * GROWN)


def _least(gaps: Tensor) -> Tensor:
    """Return the least gap of each column, (..., 1, k), inf where there is no other value."""
    if not gaps.shape[-2]:
        return torch.full((*gaps.shape[:-2], 1, gaps.shape[-1]), torch.inf, dtype=gaps.dtype)
    return gaps.amin(-2, keepdim=True)


def _box(w: Tensor, gaps: Tensor, omega: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bound on each q_i, and t, for the columns j of the arguments (see the module)."""
    t = 2 * omega / least
    known = 8 * omega <= least
    q = (w + omega * t) / (gaps - omega * (1 + t)) * GROWN
    return torch.where(known, torch.where(gaps.isinf(), 0.0, q), torch.inf), torch.where(known, t, torch.inf)


def _value_errors(w: Tensor, t: Tensor, omega: Tensor) -> Tensor:
    """Return the smaller of Weyl's bound and the first-order one with its remainder."""
    own = w.diagonal(dim1=-2, dim2=-1) + (omega * t).squeeze(-2)
    return torch.where(own.isnan(), omega.squeeze(-1), torch.minimum(own, omega.squeeze(-1))) * GROWN


def _times(a: Tensor, b: Tensor) -> Tensor:
    """Return A B for non-negative matrices with columns of B that are unknown (inf)."""
    unknown = b.isinf().any(-2, keepdim=True)
    found = a @ torch.where(b.isinf(), 0.0, b)
    return torch.where(unknown, torch.inf, found) * GROWN


def _turned(x: Tensor, q: Tensor, t: Tensor, formed: float) -> Tensor:
    """Return |x' - x|: X q, then the normalisation by sqrt(1 + |q|^2), then what forming the vectors rounds."""
    return _times(x.abs(), q) + x.abs() * (t * t / 2 + 8 * x.shape[-2] * U64) + formed


def eigenvectors_moved(a: Tensor, bound: Tensor, values: Tensor, x: Tensor, size: Tensor, formed: float) -> Moved:
    """Return how far the eigenvalues and vectors of symmetric matrices move.

    Args:
        a: the matrices.
        bound: elementwise bound on F.
        values: float64 eigenvalues (..., n).
        x: float64 eigenvectors, the columns.
        size: e, bound on the norm of the rest of F, (..., 1, 1).
        formed: error of each element of a vector as it is formed.
    """
    residual = (
        (a @ x - x * values.unsqueeze(-2)).abs() + product_rounding(a, x) + x.abs() * values.abs().unsqueeze(-2) * U64
    )
    w = (transposed(x.abs()) @ (bound @ x.abs() + residual) + size) * GROWN
    omega = (frobenius(bound) + size + frobenius(residual) * 2) * GROWN
    gaps = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs()
    gaps = torch.where(torch.eye(gaps.shape[-1], dtype=torch.bool, device=a.device), torch.inf, gaps)
    q, t = _box(w, gaps, omega, _least(gaps))
    return Moved(_value_errors(w, t, omega), (_turned(x, q, t, formed),))


def singular_vectors_moved(
    a: Tensor, bound: Tensor, u: Tensor, s: Tensor, v: Tensor, size: Tensor, formed: float
) -> Moved:
    """Return how far singular values and the columns of U and V move; arguments as in `eigenvectors_moved`."""
    left = (a @ v - u * s.unsqueeze(-2)).abs() + product_rounding(a, v) + u.abs() * s.unsqueeze(-2) * U64
    right = transposed(a) @ u
    right = (right - v * s.unsqueeze(-2)).abs() + product_rounding(transposed(a), u) + v.abs() * s.unsqueeze(-2) * U64
    m = transposed(u.abs()) @ (bound @ v.abs() + left)
    both = (m + transposed(m)) / 2 + transposed(v.abs()) @ right
    w = (both + size) * GROWN
    omega = (frobenius(bound) + size + frobenius(left) * 2 + frobenius(right) * 2) * GROWN
    eye = torch.eye(s.shape[-1], dtype=torch.bool, device=a.device)
    near = torch.where(eye, torch.inf, (s.unsqueeze(-1) - s.unsqueeze(-2)).abs())
    far = s.unsqueeze(-1) + s.unsqueeze(-2)
    least = torch.minimum(_least(near), _least(far))
    oblong = a.shape[-2] != a.shape[-1]
    if oblong:
        least = torch.minimum(least, s.unsqueeze(-2))
    q, t = _box(w, near, omega, least)
    opposite, _ = _box(w, far, omega, least)
    both_q = q + opposite
    rest, _ = _box(omega, s.unsqueeze(-2), omega, least)
    rest = rest * 2**0.5 * GROWN
    vectors = []
    for x, larger in ((u, a.shape[-2] > a.shape[-1]), (v, a.shape[-1] > a.shape[-2])):
        found = _turned(x, both_q, t, formed)
        vectors.append(found + rest if larger else found)
    return Moved(_value_errors(w, t, omega), tuple(vectors))
