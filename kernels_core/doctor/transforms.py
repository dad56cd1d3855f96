"""Error-free transforms on this machine: nothing contracts, reorders or flushes what double-double arithmetic rests on.

Each transform runs on tensors long enough to be vectorised and split among PyTorch's threads, and on what is left over
at their ends, with numbers of very different size; the results are compared in integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from kernels_core.doctor.measurement import Measurement
from kernels_core.doubles import error_free

Tensor = torch.Tensor
Transform = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_SIZES = (1, 3, 1021, 1 << 17)
_LOOKED_AT = 1000  # elements of a tensor compared in integers
_POINT = 2200  # exact numbers are integers times 2^-2200: products of two float64 numbers are


def measured(seed: int = 0) -> list[Measurement]:
    """Return whether sums and products with their errors are exact, and whether a product is rounded on its own."""
    generator = torch.Generator().manual_seed(seed)
    return [
        _measurement("a sum and its rounding error are exact (two_sum)", _wrong_sums(generator)),
        _measurement("a product and its rounding error are exact (two_product)", _wrong_products(generator)),
        _measurement("a product is rounded before it is added to, no FMA", _contracted(generator)),
    ]


def _measurement(name: str, found: Iterator[tuple[int, int, str]]) -> Measurement:
    tried, wrong, where = 0, 0, ""
    for looked_at, failed, place in found:
        tried, wrong, where = tried + looked_at, wrong + failed, place if failed else where
    return Measurement("arithmetic", name, math.inf if wrong else 0.0, 0.0, "", where, tried)


def _numbers(size: int, spread: int, generator: torch.Generator) -> Tensor:
    """Return numbers between 1 and 2 with signs, times powers of two up to 2^spread either way."""
    value = torch.rand(size, generator=generator, dtype=torch.float64) + 1
    sign = torch.randint(0, 2, (size,), generator=generator) * 2.0 - 1
    power = torch.randint(-spread, spread + 1, (size,), generator=generator).to(torch.float64)
    return value * sign * torch.exp2(power)


def _wrong_sums(generator: torch.Generator) -> Iterator[tuple[int, int, str]]:
    for size in _SIZES:
        for spread in (0, 30, 500):
            a, b = _numbers(size, spread, generator), _numbers(size, spread, generator)
            for name, y in (("", b), (", cancelling", -a * (1 + 2.0**-50))):
                yield _compared(error_free.two_sum, a, y, lambda x, y: x + y << _POINT, f"{size} sums{name}")


def _wrong_products(generator: torch.Generator) -> Iterator[tuple[int, int, str]]:
    for size in _SIZES:
        for spread, shift in ((0, 0), (200, 0), (2, -481), (8, 480)):
            a, b = (_numbers(size, spread, generator) * 2.0**shift for _ in range(2))
            yield _compared(error_free.two_product, a, b, lambda x, y: x * y, f"{size} products near 2^{2 * shift}")


def _compared(
    transform: Transform, a: Tensor, b: Tensor, exact: Callable[[int, int], int], where: str
) -> tuple[int, int, str]:
    """Return how many elements were looked at and how many are not `exact`, in units of 2^-4400."""
    places = torch.linspace(0, len(a) - 1, min(len(a), _LOOKED_AT)).long().unique()
    parts = [part[places].tolist() for part in (a, b, *transform(a, b))]
    wrong = sum(
        exact(_integer(x), _integer(y)) != _integer(s) + _integer(e) << _POINT
        for x, y, s, e in zip(*parts, strict=True)
    )
    return len(places), wrong, where


def _integer(x: float) -> int:
    if not math.isfinite(x):
        return 1  # 2^-2200, which no sum or product here is
    numerator, denominator = x.as_integer_ratio()
    return numerator << (_POINT - denominator.bit_length() + 1)


def _contracted(generator: torch.Generator) -> Iterator[tuple[int, int, str]]:
    """A product less itself is zero; with FMA it would be its rounding error."""
    for size in _SIZES:
        a, b = _numbers(size, 3, generator), _numbers(size, 3, generator)
        product = a * b
        yield size, int((multiply_subtract(a, b, product) != 0).sum()), f"{size} products"


def multiply_subtract(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return a b - c as the evaluation writes it."""
    return a * b - c
