"""Sums and products by exact splitting: contained whatever the range, and narrow beside what a kernel may err."""

from __future__ import annotations

import flint
import pytest
import torch

from kernels_core.doubles import exact_sums
from kernels_core.doubles.exact_sums import matmul, row_scale, slice_off, total
from kernels_core.doubles.number import DoubleDouble, exactly
from tests.core.doubles.containing import exact, moved, numbers, off, require_contains, uniform


def shaped(number: DoubleDouble, *shape: int) -> DoubleDouble:
    return number.each(lambda part: part.reshape(shape))


def spread(rows: int, columns: int, decades: float, seed: int) -> DoubleDouble:
    """Return a matrix whose elements differ in size by powers of ten."""
    n = rows * columns
    values = uniform(-1, 1, n, seed) * 10 ** uniform(-decades, decades, n, seed + 1)
    return shaped(numbers(values, seed), rows, columns)


def product(a: list[flint.arb], b: list[flint.arb], m: int, k: int, n: int) -> list[flint.arb]:
    return [sum((a[i * k + t] * b[t * n + j] for t in range(k)), flint.arb(0)) for i in range(m) for j in range(n)]


@pytest.mark.parametrize("decades", [0, 3, 12, 100])
@pytest.mark.parametrize("size", [1, 2, 7, 64, 300])
def test_products_are_contained(size, decades):
    a, b = spread(3, size, decades, 1), spread(size, 4, decades, 2)
    _, unknown = require_contains(matmul(a, b), product(exact(a), exact(b), 3, size, 4))
    assert unknown == 0


@pytest.mark.parametrize("size", [64, 1000])
def test_radii_of_products_are_far_below_what_a_kernel_may_err(size):
    a, b = spread(5, size, 0, 1), spread(size, 5, 0, 2)
    allowed = size * 2.0**-53 * (a.hi.abs() @ b.hi.abs())
    assert float((matmul(a, b).rad / allowed).max()) < 2.0**-25


def test_products_of_uncertain_matrices_are_contained():
    for share in (2.0**-80, 2.0**-20, 0.5):
        a, b = off(spread(3, 50, 2, 1), share), off(spread(50, 4, 2, 3), share)
        require_contains(matmul(a, b), product(moved(a), moved(b, 6), 3, 50, 4))


def test_batches_are_multiplied_one_by_one():
    a, b = shaped(numbers(uniform(-1, 1, 2 * 3 * 5)), 2, 3, 5), shaped(numbers(uniform(-1, 1, 2 * 5 * 4, 3)), 2, 5, 4)
    both = matmul(a, b)
    for k in range(2):
        one = matmul(a.each(lambda t, k=k: t[k]), b.each(lambda t, k=k: t[k]))
        assert torch.equal(one.hi, both.hi[k])
        assert torch.equal(one.lo, both.lo[k])


def test_rows_of_zeros_give_certain_zeros_and_extreme_rows_nothing():
    a = exactly(
        torch.tensor([[0.0, 0.0], [1.0, 2.0], [5e-324, 0.0], [1e200, 1.0], [torch.nan, 1.0]], dtype=torch.float64)
    )
    found = matmul(a, exactly(torch.ones(2, 1, dtype=torch.float64)))
    assert [bool(v) for v in (found.rad + found.hi + found.lo).isfinite()] == [True, True, False, False, False]
    assert float(found.rad[0]) == float(found.hi[0]) == 0


@pytest.mark.parametrize("decades", [0, 12, 100])
@pytest.mark.parametrize("size", [1, 2, 33, 500])
def test_sums_are_contained(size, decades):
    a = spread(4, size, decades, 3)
    values = exact(a)
    sums = [sum(values[i * size : (i + 1) * size], flint.arb(0)) for i in range(4)]
    _, unknown = require_contains(total(a, (1,)), sums)
    assert unknown == 0
    columns = [sum(values[j::size], flint.arb(0)) for j in range(size)]
    require_contains(total(a, (0,), keepdim=True), columns)
    uncertain = off(a, 2.0**-30)
    require_contains(total(uncertain, (0, 1)), [sum(moved(uncertain), flint.arb(0))])


def test_cancelling_sums_are_narrow():
    values = uniform(-1, 1, 300)
    a = exactly(torch.cat([values, -values * (1 + 2.0**-30)]))
    widest, _ = require_contains(total(a, (0,)), [sum(exact(a), flint.arb(0))])
    assert widest < 2.0**-60


def test_slices_are_exact_and_add_up():
    x = uniform(-9, 9, 100).reshape(4, 25)
    scale = row_scale(x, (1,))
    assert bool((x.abs() <= scale).all())
    top, rest = slice_off(x, scale, 20)
    assert torch.equal((top / scale * 2**20).round(), top / scale * 2**20)
    assert bool((rest.abs() <= scale * 2.0**-21).all())
    assert torch.equal(top + rest, x)


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2)])
def test_large_sums_are_put_together_from_pieces(monkeypatch, dims):
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(7, 12, 5, generator=generator, dtype=torch.float64)
    a = off(shaped(numbers(values.reshape(-1)), 7, 12, 5), 2.0**-60)
    for keepdim in (True, False):
        whole = total(a, dims, keepdim=keepdim)
        monkeypatch.setattr(exact_sums, "_PIECE", 40)
        pieces = total(a, dims, keepdim=keepdim)
        monkeypatch.undo()
        for part, other in ((whole.hi, pieces.hi), (whole.lo, pieces.lo), (whole.rad, pieces.rad)):
            assert part.shape == other.shape
        assert torch.equal(whole.hi, pieces.hi)
        assert bool(((whole.lo - pieces.lo).abs() <= whole.rad + pieces.rad).all())
        assert bool((pieces.rad >= a.rad.sum(dims, keepdim=keepdim) * (1 - 2.0**-40)).all())
