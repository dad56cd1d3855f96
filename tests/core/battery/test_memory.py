"""Memory that is not the kernel's own."""

from __future__ import annotations

import ctypes
import itertools

import pytest
import torch

from kernels_core.report import Outcome
from kernels_core.verify import verify
from tests.core.battery.planted import require_caught, require_left_alone, seeded


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        torch.mul(x, 2, out=out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def poke(tensor: torch.Tensor, place: int) -> None:
    """Write 1 to an element, also where it lies outside of the tensor."""
    ctypes.c_float.from_address(tensor.data_ptr() + 4 * place).value = 1.0


class WritesBehindItsInput(Double):
    @staticmethod
    def forward(ctx, x):
        poke(x, x.numel())  # the allocator rounds 96 bytes up: harmless, and unseen
        return 2 * x


class WritesBehindItsOutput(Double):
    @staticmethod
    def forward(ctx, x):
        out = Double.forward(ctx, x)
        poke(out, out.numel())
        return out


class WritesBehindTheGradient(Double):
    @staticmethod
    def backward(ctx, grad):
        poke(grad, grad.numel())
        return 2 * grad


def twice(x):
    return 2 * x


def wrapped(x):
    return torch.nn.functional.pad(x, (2, 1), mode="circular")


def shifted(x):
    return x - x.max()


class TakesTheMaximumOfTheStorage(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        whole = x.new_empty(0).set_(x.untyped_storage())
        return x - whole.max()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad - grad.sum() * (x == x.max())


class ShiftedByItsMaximum(TakesTheMaximumOfTheStorage):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x - x.max()


def leaving(count: int) -> type[torch.autograd.Function]:
    """Return a kernel that writes all of its output in the first call, and all but the last elements in later ones."""
    calls = itertools.count()

    class LeavesTheLast(Double):
        @staticmethod
        def forward(ctx, x):
            out = torch.empty_like(x)
            written = len(x) - count * (next(calls) > 0)
            out[:written] = 2 * x[:written]
            return out

    return LeavesTheLast


class ScalesWhatItNeverWrote(Double):
    @staticmethod
    def forward(ctx, x):
        return torch.empty_like(x).mul_(0).nan_to_num_(0, 0, 0) * 0 + 2 * x


X = {"x": seeded(4, 6)}


@pytest.mark.parametrize(
    ("kernel", "evidence"),
    [
        (WritesBehindItsInput, "the memory behind input x is written to"),
        (WritesBehindItsOutput, "the memory behind an allocation is written to"),
        (WritesBehindTheGradient, "the memory behind grad_output is written to"),
    ],
)
def test_element_written_behind_a_tensor_is_caught(kernel: type[torch.autograd.Function], evidence: str):
    require_caught(kernel, "canaries", X, evidence, reference=twice)
    require_left_alone(Double, "canaries", X, reference=twice)


def test_element_read_outside_of_a_tensor_is_caught():
    require_caught(TakesTheMaximumOfTheStorage, "canaries", X, "of output violated", reference=shifted)
    require_left_alone(ShiftedByItsMaximum, "canaries", X, reference=shifted)
    (row,) = verify(TakesTheMaximumOfTheStorage, X, reference=shifted, battery=["unwritten"]).battery
    assert row.outcome is Outcome.PASS, "what is read was written, by somebody else"


def test_element_that_is_never_written_is_caught():
    x, evidence = {"x": seeded(24)}, "3 of 24 elements of output are unwritten, the first is [21]"
    require_caught(leaving(3), "unwritten", x, evidence, reference=twice)
    require_left_alone(Double, "unwritten", x, reference=twice)


def test_new_memory_that_pytorch_itself_takes_from_the_start_of_its_storage_is_left_alone():
    for item in ("canaries", "unwritten"):
        require_left_alone(wrapped, item, {"x": seeded(1, 2, 6)})


def test_memory_that_is_read_and_has_no_influence_is_left_alone():
    require_left_alone(ScalesWhatItNeverWrote, "unwritten", X, reference=twice)


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float16, torch.float64])
def test_every_dtype_is_poisoned(dtype: torch.dtype):
    class Negate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.empty_like(x)
            return out.copy_(-x.float())

        @staticmethod
        def backward(ctx, grad):
            return torch.empty(grad.shape, dtype=grad.dtype).copy_(-grad.float())

    for item in ("unwritten", "canaries"):
        require_left_alone(Negate, item, {"x": seeded(4, 6).to(dtype)})
