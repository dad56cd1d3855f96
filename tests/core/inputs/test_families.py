"""Families of values: what is drawn, and in which format."""

from __future__ import annotations

import pytest
import torch

from kernels_core.inputs import families


@pytest.mark.parametrize(("count", "dtype", "narrow"), [
    (1 << 20, torch.float32, True), (1 << 20, torch.bfloat16, True), (1 << 20, torch.float64, False),
    ((1 << 20) - 1, torch.float32, False),
])  # fmt: skip
@pytest.mark.parametrize("family", ["normal", "uniform"])
def test_many_numbers_of_a_format_that_float32_holds_are_drawn_in_it(
    family: str, count: int, dtype: torch.dtype, narrow: bool
) -> None:
    found = families.draw(family, (count,), torch.Generator().manual_seed(1), dtype)
    assert found.dtype is torch.float64
    assert torch.equal(found, found.float().double()) == narrow
    assert abs(float(found.mean())) < 0.01
