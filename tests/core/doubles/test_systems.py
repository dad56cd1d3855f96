"""Linear systems and Cholesky factors: FLINT's solution lies within the radius, which is narrow."""

from __future__ import annotations

import flint
import pytest
import torch

from kernels_core.doubles.number import DoubleDouble, exactly
from kernels_core.doubles.systems import factored, solved
from tests.core.doubles.containing import exact, moved, numbers, off, require_contains, uniform

N = 24


def shaped(number: DoubleDouble, *shape: int) -> DoubleDouble:
    return number.each(lambda part: part.reshape(shape))


def matrix(rows: int, columns: int, seed: int) -> DoubleDouble:
    return shaped(numbers(uniform(-1, 1, rows * columns, seed), seed), rows, columns)


def solution(a: list[flint.arb], b: list[flint.arb], columns: int) -> list[flint.arb]:
    return list(flint.arb_mat(N, N, a).solve(flint.arb_mat(N, columns, b)).entries())


def test_solutions_are_contained_to_seventy_bits_of_the_largest():
    a, b = matrix(N, N, 1), matrix(N, 2, 2)
    found = solved(a, b)
    _, unknown = require_contains(found, solution(exact(a), exact(b), 2))
    assert unknown == 0
    assert float(found.rad.max() / found.hi.abs().max()) < 2.0**-70


@pytest.mark.parametrize("share", [2.0**-70, 2.0**-30])
def test_solutions_of_uncertain_systems_are_contained(share):
    a, b = off(matrix(N, N, 1), share), off(matrix(N, 2, 2), share)
    _, unknown = require_contains(solved(a, b), solution(moved(a), moved(b, 6), 2))
    assert unknown == 0


def test_nothing_is_known_of_systems_that_may_be_singular():
    a = exactly(torch.ones(3, 3, dtype=torch.float64))
    assert not bool(solved(a, matrix(3, 1, 1)).rad.isfinite().any())
    assert not bool(solved(off(matrix(3, 3, 1), 1.0), matrix(3, 1, 1)).rad.isfinite().any())


def positive(seed: int) -> DoubleDouble:
    half = uniform(-1, 1, N * N, seed).reshape(N, N)
    values = half @ half.T + 0.1 * torch.eye(N, dtype=torch.float64)
    low = shaped(numbers(values.reshape(-1), seed), N, N).lo.tril()
    symmetric = values.tril() + values.tril(-1).T
    return DoubleDouble(symmetric, low + low.tril(-1).T, torch.zeros_like(symmetric))


def cholesky(a: list[flint.arb]) -> list[flint.arb]:
    rows = [a[i * N : (i + 1) * N] for i in range(N)]
    low = [[flint.arb(0)] * N for _ in range(N)]
    for j in range(N):
        low[j][j] = (rows[j][j] - sum((v * v for v in low[j][:j]), flint.arb(0))).sqrt()
        for i in range(j + 1, N):
            inner = sum((x * y for x, y in zip(low[i][:j], low[j][:j], strict=True)), flint.arb(0))
            low[i][j] = (rows[i][j] - inner) / low[j][j]
    return [v for row in low for v in row]


def test_cholesky_factors_are_contained_to_seventy_bits_of_the_largest():
    a = positive(3)
    found = factored(a)
    _, unknown = require_contains(found, cholesky(exact(a)))
    assert unknown == 0
    assert float(found.rad.max() / found.hi.abs().max()) < 2.0**-70


def test_cholesky_factors_of_uncertain_matrices_are_contained():
    a = off(positive(3), 2.0**-50)
    lower = moved(a)
    values = [lower[max(i, j) * N + min(i, j)] for i in range(N) for j in range(N)]
    _, unknown = require_contains(factored(a), cholesky(values))
    assert unknown == 0


def test_nothing_is_known_of_a_matrix_that_is_not_positive_definite():
    a = exactly(torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64)))
    assert not bool(factored(a).rad.tril().diagonal().isfinite().any())
