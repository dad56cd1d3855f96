"""Strides: kernels that walk through memory as if it were contiguous, and those that do not."""

from __future__ import annotations

import pytest
import torch

from kernels_core.battery.layouts import LAYOUTS, differs, offset, padded_rows, reversed_order
from kernels_core.report import Outcome
from kernels_core.verify import verify
from tests.core.battery.planted import kernel, require_caught, require_left_alone, seeded

Sine, sine = kernel("Sine"), kernel("sine")


class AsksForContiguousInput(Sine):
    @staticmethod
    def forward(ctx, x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        return Sine.forward(ctx, x)


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4, 5)])
def test_gradient_read_as_contiguous_is_caught(shape: tuple[int, ...]):
    options = {"inputs": {"x": seeded(*shape)}, "reference": sine}
    require_caught(kernel("ReadsGradAsContiguous"), "grad_output_layout", evidence="grad_x violated", **options)
    require_left_alone(Sine, "grad_output_layout", **options)


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4, 5)])
def test_input_read_as_contiguous_is_caught(shape: tuple[int, ...]):
    options = {"inputs": {"x": seeded(*shape)}, "reference": sine}
    require_caught(kernel("ReadsInputAsContiguous"), "input_layout", evidence="of output violated", **options)
    require_left_alone(Sine, "input_layout", **options)


def test_every_layout_holds_the_values_in_another_memory():
    given = seeded(2, 3, 4, 5)
    for name, layout in LAYOUTS.items():
        assert torch.equal(layout(given), given), name
        assert differs(layout(given), given), name
    assert offset(given).storage_offset() > 100
    assert padded_rows(given).stride()[-2] > 100
    assert reversed_order(given).stride()[0] == 1


def test_kernel_that_takes_overlapping_rows_for_rows_of_their_own_is_caught():
    class TakesRowsToBeApart(Sine):
        @staticmethod
        def forward(ctx, x):
            return Sine.forward(ctx, x if x.stride() != (1, 1) else torch.zeros_like(x))

    require_caught(TakesRowsToBeApart, "input_layout", {"x": seeded(4, 6)}, "overlapping: ", reference=sine)


def test_kernel_that_asks_for_contiguous_inputs_has_refused():
    row = require_left_alone(
        AsksForContiguousInput, "input_layout", {"x": seeded(4, 6)}, Outcome.REFUSED, reference=sine
    )
    assert "x must be contiguous" in row.evidence


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.float64])
def test_layouts_of_every_dtype_are_judged(dtype: torch.dtype):
    class Halve(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x.float() / 2).to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            return (grad.float() / 2).to(grad.dtype)

    for item in ("grad_output_layout", "input_layout"):
        require_left_alone(Halve, item, {"x": seeded(4, 6).to(dtype)})


def test_parameters_of_a_module_are_laid_out_as_a_module_can_lay_them_out() -> None:
    """PyTorch's batch_norm reads a weight with strides as contiguous (docs/findings.md): no module has one."""
    x, w = seeded(5, 6), seeded(6)
    (row,) = verify(torch.nn.BatchNorm1d(6), {"input": x}, battery=["input_layout"]).battery
    assert row.outcome is Outcome.PASS
    assert "weight" not in row.evidence

    def normalised(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(input, None, None, weight, training=True)

    (row,) = verify(normalised, {"input": x, "weight": w}, reference=normalised, battery=["input_layout"]).battery
    assert row.outcome is Outcome.FAIL
    assert row.evidence.startswith("sliced weight: ")
