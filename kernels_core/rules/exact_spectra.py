"""Eigenvalues, singular values and their vectors in balls: FLINT's certified eigenvalues, each isolated from the rest.

Values that balls cannot tell apart (equal ones never) raise NotSeparatedError, which ends in undecided. The sign of a
vector is that which makes its largest component positive; what depends on it is unconstrained and not asked for.
Source: FLINT, acb_mat_eig_simple (Rump's method of verified eigenpairs).
"""

from __future__ import annotations

import itertools
from typing import Any

import flint
import numpy as np

from kernels_core.exact.numbers import NotRationalError, NotSeparatedError
from kernels_core.rules.matrices import transpose_of, triangle_of

Objects = Any


def eigenpairs(a: Objects) -> tuple[list[Any], Objects]:
    """Return the eigenvalues of a symmetric matrix of balls in ascending order, and unit eigenvectors as columns."""
    n = a.shape[0]
    if not n:
        return [], np.empty((0, 0), dtype=object)
    matrix: Any = flint.acb_mat
    try:
        values, x = matrix(n, n, list(a.reshape(-1))).eig(right=True)
    except (ValueError, RuntimeError):
        raise NotSeparatedError from None
    order = sorted(range(n), key=lambda k: float(values[k].real.mid()))
    for first, second in itertools.pairwise(order):
        if not values[first].real < values[second].real:
            raise NotSeparatedError
    vectors = np.empty((n, n), dtype=object)
    for k, column in enumerate(order):
        vectors[:, k] = unit_real([x[i, column] for i in range(n)])
    return [values[k].real for k in order], vectors


def unit_real(z: list[Any]) -> list[Any]:
    """Return the real unit vector in the direction of a complex multiple of it, its largest component positive."""
    top = max(z, key=lambda c: float(abs(c).mid()))
    turned = [(c * top.conjugate()).real for c in z]
    norm = sum((c * c for c in turned), flint.arb(0)).sqrt()
    return [c / norm for c in turned]


def balls(call: Any, a: Objects) -> Objects:
    """Return the matrix in balls; rationals have no eigenvalues here."""
    if call.numbers.rational:
        raise NotRationalError
    found = np.empty(a.shape, dtype=object)
    found.reshape(-1)[:] = [flint.arb(v) for v in a.reshape(-1)]
    return found


def exact_eigh(call: Any, a: Objects) -> tuple[Objects, ...]:
    """Return eigenvalues and eigenvectors."""
    upper = str(call.step.argument(1, "UPLO", "L")) == "U"
    half = triangle_of(balls(call, a), upper, False)
    full = half + transpose_of(half)
    for i in range(len(full)):
        full[i, i] = half[i, i]
    values, vectors = eigenpairs(full)
    return np.array([*values, None], dtype=object)[:-1], vectors


def singular_triples(a: Objects) -> tuple[Objects, list[Any], Objects]:
    """Return U, the singular values in descending order, and V, from the eigenvalues of the smaller A^T A or A A^T."""
    if a.shape[0] < a.shape[1]:
        u, s, v = singular_triples(transpose_of(a))
        return v, s, u
    if not a.shape[1]:
        return a, [], np.empty((0, 0), dtype=object)
    squares, v = eigenpairs(transpose_of(a).dot(a))
    v, s = v[:, ::-1], [(+x).max(flint.arb(0)).sqrt() for x in squares[::-1]]
    return a.dot(v) / np.array([*s, None], dtype=object)[:-1], s, v


def exact_svd(call: Any, a: Objects) -> tuple[Objects, ...]:
    """Return U, S and Vh."""
    u, s, v = singular_triples(balls(call, a))
    full = bool(call.step.argument(1, "full_matrices", False))
    if full and a.shape[0] != a.shape[1]:
        raise NotSeparatedError  # the further columns have no exact value
    return u, np.array([*s, None], dtype=object)[:-1], transpose_of(v)
