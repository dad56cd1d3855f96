"""Strides: kernels that walk through memory as if it were contiguous, and those that do not."""

from __future__ import annotations

import pytest
import torch

from kernels_core.battery.layouts import LAYOUTS, conjugated, differs, offset, padded_rows, reversed_order
from kernels_core.report import Outcome
from kernels_core.verify import check, verify
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
    for name, layout in LAYOUTS.items():
        given = seeded(2, 3, 4, 5)
        given = torch.complex(given, given) if layout is conjugated else given
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


class TwiceInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def test_a_kernel_that_works_in_place_is_not_judged_on_memory_that_overlaps():
    given = seeded(4, 6)
    before = given.clone()
    row = require_left_alone(TwiceInPlace, "input_layout", {"x": given}, Outcome.REFUSED, reference=lambda x: 2 * x)
    assert row.evidence.startswith("expanded: ")  # PyTorch itself refuses to write there
    assert torch.equal(given, before)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        return 2 * z

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def from_memory(z: torch.Tensor) -> torch.Tensor:
    """Return the numbers that a kernel finds which knows address, shape and strides alone."""
    memory = torch.empty(0, dtype=z.dtype)
    return memory.set_(z.untyped_storage(), z.storage_offset(), z.shape, z.stride())


class TwiceOfMemory(Twice):
    @staticmethod
    def forward(ctx, z):
        return 2 * from_memory(z)


class TwiceOfGradMemory(Twice):
    @staticmethod
    def backward(ctx, grad):
        return 2 * from_memory(grad)


def test_kernels_that_do_not_see_that_a_view_conjugates_are_caught():
    given = torch.complex(seeded(4, 6), seeded(4, 6) + 1)
    for item in ("input_layout", "grad_output_layout"):
        for z in (given, given.conj()):
            require_left_alone(Twice, item, {"z": z}, reference=lambda z: 2 * z)
    require_caught(TwiceOfMemory, "input_layout", {"z": given}, "conjugated: ", reference=lambda z: 2 * z)
    require_caught(TwiceOfGradMemory, "grad_output_layout", {"z": given}, "conjugated: ", reference=lambda z: 2 * z)


def test_an_input_that_is_a_conjugate_or_negated_view_is_given_as_it_is():
    z = torch.complex(seeded(4), seeded(4) + 1)
    assert check(lambda z: 2 * z, (z.conj(),))
    assert not check(lambda z: 2 * from_memory(z), (z.conj(),), reference=lambda z: 2 * z)
    negated = z.conj().imag
    assert negated.is_neg()
    assert check(lambda x: 2 * x, (negated,), battery=["input_layout"])
    assert not check(lambda x: 2 * from_memory(x), (negated,), reference=lambda x: 2 * x)


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
