"""grid_sample: eager kernels covered in every mode, errors caught, places on the edge left open."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels_core.coverage import Element
from tests.core.rules.checker import check_rule, evaluate

PADDINGS = ("zeros", "border", "reflection")


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample_covers_eager_kernels(mode: str, padding: str, align: bool) -> None:
    torch.manual_seed(0)
    image, grid = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 3, 2)
    check_rule(
        lambda image, grid: F.grid_sample(image, grid, mode, padding, align),
        [image, grid],
        [torch.float32],
        caught=0.5,
        planted_ulp=2048 if mode != "bicubic" else 32768,
        exact=mode != "bicubic",
    )


@pytest.mark.parametrize("padding", PADDINGS)
def test_grid_sample_in_three_dimensions_covers_eager_kernels(padding: str) -> None:
    torch.manual_seed(1)
    image, grid = torch.randn(1, 2, 3, 4, 3), torch.randn(1, 2, 2, 2, 3)
    check_rule(
        lambda image, grid: F.grid_sample(image, grid, "bilinear", padding, False),
        [image, grid],
        [torch.float32],
        caught=0.75,
        planted_ulp=2048,
    )


def test_grid_sample_of_a_place_on_an_input_is_never_violated() -> None:
    image = torch.randn(1, 1, 3, 3)
    grid = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [float("nan"), 0.0]]).reshape(1, 2, 2, 2)
    results, actuals = evaluate(lambda image, grid: F.grid_sample(image, grid, align_corners=True), [image, grid])
    assert not any(bool((r.verdict(a) == Element.VIOLATED).any()) for r, a in zip(results, actuals, strict=True))
