"""The doctor catches arithmetic that contracts, flushes or loses what double-double numbers rest on."""

from __future__ import annotations

import pytest
import torch

from kernels_core.doctor import transforms
from kernels_core.doubles import error_free

Tensor = torch.Tensor
TWO_PRODUCT = error_free.two_product


def contracted(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return a b - c with one rounding, as FMA does, where c is the rounded product."""
    return error_free.two_product(a, b)[1] + (error_free.two_product(a, b)[0] - c)


def whole(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return halves of which one is all."""
    return a, torch.zeros_like(a)


def reassociated(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a sum whose error a compiler with -ffast-math finds to be zero."""
    return a + b, torch.zeros_like(a)


def flushed(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a product whose subnormal parts are flushed to zero."""
    product, error = TWO_PRODUCT(a, b)
    return product, torch.where(error.abs() < 2.0**-1022, 0.0, error)


def broken(measurements: list[transforms.Measurement]) -> list[int]:
    return [number for number, measurement in enumerate(measurements) if not measurement.holds]


def test_transforms_are_exact_on_this_machine():
    assert broken(transforms.measured()) == []


@pytest.mark.parametrize(
    ("module", "name", "planted", "caught"),
    [
        (error_free, "two_sum", reassociated, 0),
        (error_free, "two_product", flushed, 1),
        (error_free, "split", whole, 1),
        (transforms, "multiply_subtract", contracted, 2),
    ],
)
def test_arithmetic_that_breaks_a_transform_is_caught(monkeypatch, module, name, planted, caught):
    monkeypatch.setattr(module, name, planted)
    assert broken(transforms.measured()) == [caught]
