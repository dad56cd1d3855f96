"""Kernels whose values are right in one friendly call, and that break the contract: one for each item of the battery.

`exactref gradcheck configs/contract_faults.py:NAME` shows what each item says; with `--battery none` all are covered.
"""

import ctypes
import itertools

import torch
from torch.autograd import Function


class Sine(Function):
    """A correct kernel: what the faulty ones below are made of."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        """Return cos(x) grad."""
        (x,) = ctx.saved_tensors
        return torch.cos(x) * grad


def walk(tensor):
    """Read the memory of a tensor as if it were contiguous, up to its end."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    place = (tensor.storage_offset() + torch.arange(tensor.numel())).clamp(max=size - 1)
    return torch.as_strided(tensor, (size,), (1,), 0)[place].reshape(tensor.shape)


class ReadsGradAsContiguous(Sine):
    """grad_output_layout: the upstream gradient is walked through as if it were contiguous."""

    @staticmethod
    def backward(ctx, grad):
        """Return wrong values where grad is transposed, sliced or expanded."""
        return Sine.backward(ctx, walk(grad))


class ReadsInputAsContiguous(Sine):
    """input_layout: the input is walked through as if it were contiguous."""

    @staticmethod
    def forward(ctx, x):
        """Return wrong values where x is transposed, sliced or expanded."""
        ctx.save_for_backward(x)
        return torch.sin(walk(x))


class Multiply(Function):
    """A correct product of two inputs."""

    @staticmethod
    def forward(ctx, a, b):
        """Return a b."""
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        """Return grad b and grad a."""
        a, b = ctx.saved_tensors
        return grad * b, grad * a


class AsksForTheOtherInput(Multiply):
    """frozen_inputs: each gradient is computed where the *other* input needs one."""

    @staticmethod
    def backward(ctx, grad):
        """Return None for the only input that needs a gradient."""
        a, b = ctx.saved_tensors
        first, second = ctx.needs_input_grad
        return grad * b if second else None, grad * a if first else None


class SineAndCosine(Function):
    """each_output_alone: what the second output gives is lost where the first has a zero gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x) and cos(x)."""
        ctx.save_for_backward(x)
        return torch.sin(x), torch.cos(x)

    @staticmethod
    def backward(ctx, first, second):
        """Return the gradient of both, or of none."""
        (x,) = ctx.saved_tensors
        both = first * torch.cos(x) - second * torch.sin(x)
        return torch.where(first == 0, torch.zeros_like(both), both)


class CannotTakeUndefined(Sine):
    """undefined_grad_output: asks for gradients as they come, and does not expect None."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        ctx.set_materialize_grads(False)
        return Sine.forward(ctx, x)


class DividesByTheLargest(Sine):
    """zero_grad_output: scales the upstream gradient by its largest element, 0/0 where it is zero."""

    @staticmethod
    def backward(ctx, grad):
        """Return NaN for zeros."""
        scale = torch.exp2(torch.floor(torch.log2(grad.abs().max())))  # a power of two: exact
        return Sine.backward(ctx, grad / scale) * scale


class AddsARow(Function):
    """A correct sum of a matrix and a row."""

    @staticmethod
    def forward(ctx, x, bias):
        """Return x + bias, the bias a row."""
        return x + bias

    @staticmethod
    def backward(ctx, grad):
        """Return grad and its sum over the rows."""
        return grad, grad.sum(0)


class LeavesTheSumToTheEngine(AddsARow):
    """raw_backward: the gradient of the bias has the shape of the output; the engine sums it without a word."""

    @staticmethod
    def backward(ctx, grad):
        """Return grad twice."""
        return grad, grad


class TakesTheSign(Function):
    """A correct kernel that returns None: what it gives its second argument to is constant in pieces."""

    @staticmethod
    def forward(ctx, x, turn):
        """Return max(x, 0) sign(turn)."""
        ctx.save_for_backward(x, turn)
        return x.clamp(min=0) * torch.sign(turn)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradient of x, and None for a zero."""
        x, turn = ctx.saved_tensors
        return grad * torch.sign(turn) * (x > 0), None


class ForgetsTheGradient(TakesTheSign):
    """none_gradient: None for both, seen by nobody while every x is negative."""

    @staticmethod
    def backward(ctx, grad):
        """Return None."""
        return None, None


class WritesToTheGradient(Sine):
    """shared_grad_output: uses the upstream gradient, which a second branch reads too, as its own memory."""

    @staticmethod
    def backward(ctx, grad):
        """Return grad, overwritten."""
        (x,) = ctx.saved_tensors
        return grad.mul_(torch.cos(x))


class Add(Function):
    """A correct sum, whose gradients share no memory."""

    @staticmethod
    def forward(ctx, a, b):
        """Return a + b."""
        return a + b

    @staticmethod
    def backward(ctx, grad):
        """Return two copies of grad."""
        return grad.clone(), grad.clone()


class AddWithViews(Add):
    """aliasing: two views of one memory become the .grad of two inputs; what is added to one is added to both."""

    @staticmethod
    def backward(ctx, grad):
        """Return two views of grad."""
        return grad.view_as(grad), grad.view_as(grad)


class WritesToItsInput(Sine):
    """mutation: the caller's input is cleared, and not declared dirty."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        result = Sine.forward(ctx, x.clone())
        x.detach().zero_()
        return result


class WritesBehindItsOutput(Sine):
    """canaries: one element too many is written."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        out = torch.empty_like(x)
        torch.sin(x, out=out)
        ctypes.c_float.from_address(out.data_ptr() + 4 * out.numel()).value = 1.0  # falls into the allocator's padding
        ctx.save_for_backward(x)
        return out


class LeavesElementsUnwritten(Sine):
    """unwritten: calls after the first leave out the last three elements of new memory."""

    calls = itertools.count()

    @staticmethod
    def forward(ctx, x):
        """Return sin(x), the last elements whatever the memory held."""
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        done = x.numel() - 3 * (next(LeavesElementsUnwritten.calls) > 0)
        out.view(-1)[:done] = torch.sin(x).view(-1)[:done]
        return out


class AccumulatesOverCalls(Sine):
    """later_calls: adds to what the last call left."""

    total = torch.zeros(24)

    @staticmethod
    def backward(ctx, grad):
        """Return the sum over all calls."""
        return AccumulatesOverCalls.total.add_(Sine.backward(ctx, grad)).clone()


class ReturnsItsBuffer(Sine):
    """fresh_allocation: every call returns the same memory."""

    buffer = torch.zeros(24)

    @staticmethod
    def forward(ctx, x):
        """Return sin(x), until the next call."""
        ctx.save_for_backward(x)
        return ReturnsItsBuffer.buffer.copy_(torch.sin(x)).detach()


class CachesByAddress(Sine):
    """same_pointers: remembers results by the address of the input."""

    cache = {}  # noqa: RUF012 - a fault on purpose

    @staticmethod
    def forward(ctx, x):
        """Return sin of what was at this address first."""
        ctx.save_for_backward(x)
        return CachesByAddress.cache.setdefault(x.data_ptr(), (x, torch.sin(x)))[1].clone()


class UsesUpWhatItKeeps(Sine):
    """retained_graph: the factor that is kept for the backward is overwritten by it."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        ctx.factor = torch.cos(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        """Return the factor times all gradients so far."""
        return ctx.factor.mul_(grad).clone()


class WholeBlocks(Sine):
    """sizes: what does not fill a block of 8 is left at zero."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x) for whole blocks."""
        ctx.save_for_backward(x)
        done = x.shape[0] // 8 * 8
        return torch.cat([torch.sin(x[:done]), torch.zeros_like(x[done:])])


def sine(x):
    """Return sin(x)."""
    return torch.sin(x)


def multiply(a, b):
    """Return a b."""
    return a * b


def sine_and_cosine(x):
    """Return sin(x) and cos(x)."""
    return torch.sin(x), torch.cos(x)


def relu_with_sign(x, turn):
    """Return max(x, 0) sign(turn)."""
    return x.clamp(min=0) * torch.sign(turn)
