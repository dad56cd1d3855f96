"""Strides: kernels that walk through memory as if it were contiguous, and those that do not."""

from __future__ import annotations

import pytest
import torch

from kernels_core.report import Outcome
from tests.core.battery.planted import require_caught, require_left_alone, seeded


def walk(tensor: torch.Tensor) -> torch.Tensor:
    """Read the memory from the first element on as if it were contiguous, up to its end."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    memory = torch.as_strided(tensor, (size,), (1,), 0)
    place = (tensor.storage_offset() + torch.arange(tensor.numel())).clamp(max=size - 1)
    return memory[place].reshape(tensor.shape)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class WalksOverGradient(Square):
    @staticmethod
    def backward(ctx, grad):
        return Square.backward(ctx, walk(grad))


class WalksOverInput(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return walk(x) * walk(x)


class AsksForContiguousInput(Square):
    @staticmethod
    def forward(ctx, x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        return Square.forward(ctx, x)


def square(x):
    return x * x


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4, 5)])
def test_gradient_read_as_contiguous_is_caught(shape: tuple[int, ...]):
    options = {"inputs": {"x": seeded(*shape)}, "reference": square}
    require_caught(WalksOverGradient, "grad_output_layout", evidence="grad_x violated", **options)
    require_left_alone(Square, "grad_output_layout", **options)


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4, 5)])
def test_input_read_as_contiguous_is_caught(shape: tuple[int, ...]):
    options = {"inputs": {"x": seeded(*shape)}, "reference": square}
    require_caught(WalksOverInput, "input_layout", evidence="of output violated", **options)
    require_left_alone(Square, "input_layout", **options)


def test_kernel_that_asks_for_contiguous_inputs_has_refused():
    row = require_left_alone(
        AsksForContiguousInput, "input_layout", {"x": seeded(4, 6)}, Outcome.REFUSED, reference=square
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
