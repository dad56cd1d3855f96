"""Sums and matrix products in float64: within the any-order bound of every element, which no Strassen-like way keeps.

A product of n terms must err by at most n u sum |a b|, a sum by at most (n - 1) u sum |x|, with u = 2^-53 (Jeannerod
and Rump 2013); the exact value is computed in integers. Rows of very different size and sums that cancel show an
algorithm that is accurate in norm only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from kernels_core.doctor.measurement import Measurement

Tensor = torch.Tensor
_LOOKED_AT = 12  # elements of a product
_POINT = 1080  # exact numbers are integers times 2^-1080; every float64 is a multiple of 2^-1074
multiply = torch.matmul
_SHAPES = ((1, 1000, 1), (3, 5, 7), (16, 64, 33), (129, 257, 65), (640, 640, 640))


def measured(seed: int = 0) -> list[Measurement]:
    """Return the worst error of products and of sums, over the bound that the filter takes for granted."""
    generator = torch.Generator().manual_seed(seed)
    return [
        _worst("product", "error of a matrix product / (n u |A| |B|)", _products(generator)),
        _worst("product", "the same, batched, by a vector, of two vectors", _others(generator)),
        _worst("sum", "error of a sum / ((n - 1) u sum |x|)", _sums(generator)),
    ]


def _worst(kind: str, name: str, found: Iterator[tuple[float, str]]) -> Measurement:
    ratios = list(found)
    worst, where = max(ratios)
    return Measurement(kind, name, worst, 1.0, "", where, len(ratios))


def _products(generator: torch.Generator) -> Iterator[tuple[float, str]]:
    for rows, inner, columns in _SHAPES:
        for label, spread in _SPREADS:
            a, b = spread(_normal((rows, inner), generator)), spread(_normal((columns, inner), generator)).T
            product = multiply(a, b)
            for i, j in _places(rows, columns, generator):
                where = f"{label}, {rows}x{inner} by {inner}x{columns}, [{i}, {j}]"
                yield _ratio(float(product[i, j]), a[i], b[:, j]), where


def _others(generator: torch.Generator) -> Iterator[tuple[float, str]]:
    for label, spread in _SPREADS:
        a, b = spread(_normal((3, 17, 50), generator)), spread(_normal((3, 19, 50), generator)).transpose(1, 2)
        batched, vector = torch.bmm(a, b), torch.mv(a[0], b[0, :, 0])
        for n, i, j in ((0, 0, 0), (1, 16, 18), (2, 8, 9)):
            yield _ratio(float(batched[n, i, j]), a[n, i], b[n, :, j]), f"{label}, batched 17x50 by 50x19"
        yield _ratio(float(vector[5]), a[0, 5], b[0, :, 0]), f"{label}, matrix by vector"
        yield _ratio(float(torch.dot(a[0, 1], b[0, :, 1])), a[0, 1], b[0, :, 1]), f"{label}, dot product"


def _sums(generator: torch.Generator) -> Iterator[tuple[float, str]]:
    ones = torch.ones(4097, dtype=torch.float64)
    reductions: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
        ("sum", torch.sum),
        ("sum of a strided row", lambda x: torch.stack([x, x], 1)[:, 0].sum()),
        ("sum over a leading dimension", lambda x: torch.stack([x, x], 1).sum(0)[1]),
        ("cumsum", lambda x: torch.cumsum(x, 0)[-1]),
    )
    for label, spread in (("random", _plain), ("cancelling", _cancelling)):
        x = spread(_normal((1, 4097), generator))[0]
        for name, reduction in reductions:
            yield _ratio(float(reduction(x)), x, ones, 1), f"{name} of 4097, {label}"


def _normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _plain(rows: Tensor) -> Tensor:
    return rows


def _graded(rows: Tensor) -> Tensor:
    scale = torch.linspace(0, -60, rows.shape[-2], dtype=torch.float64).round()
    return rows * torch.exp2(scale).unsqueeze(-1)


def _cancelling(rows: Tensor) -> Tensor:
    """Return rows whose second half is nearly minus the first."""
    half = rows.shape[-1] // 2
    return torch.cat([rows[..., :half], -rows[..., :half] * (1 + 2.0**-50), rows[..., 2 * half :]], -1)


_SPREADS = (("random", _plain), ("rows from 1 to 2^-60", _graded), ("cancelling", _cancelling))


def _places(rows: int, columns: int, generator: torch.Generator) -> list[tuple[int, int]]:
    corners = {(0, 0), (rows - 1, columns - 1), (rows - 1, 0), (0, columns - 1)}
    drawn = torch.randint(rows * columns, (_LOOKED_AT,), generator=generator).tolist()
    return sorted({*corners, *(divmod(n, columns) for n in drawn)})


def _ratio(actual: float, a: Tensor, b: Tensor, fewer: int = 0) -> float:
    """Return |actual - sum a b| / ((n - fewer) u sum |a b|); 0 where both are 0."""
    if not math.isfinite(actual):
        return math.inf
    terms = [_integer(x) * _integer(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    error = abs((_integer(actual) << _POINT) - sum(terms))
    bound = (len(terms) - fewer) * sum(map(abs, terms))  # of error 2^53
    return 0.0 if not error else (error << 53) / bound if bound else math.inf


def _integer(x: float) -> int:
    numerator, denominator = x.as_integer_ratio()
    return numerator << (_POINT - denominator.bit_length() + 1)
