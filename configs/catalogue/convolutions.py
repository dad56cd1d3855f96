"""Convolutions as matrix products over unfolded inputs, tap by tap, and a fault of each."""

import torch
from torch.autograd import Function
from torch.nn import functional as F


def wide(t):
    """Return a 16-bit tensor as float32, others as they are."""
    return t.float() if t.dtype.itemsize < 4 else t


def places(taps, size, stride, padding, dilation):
    """Yield each tap with the window of input positions (of the padded input) that it meets, dimension by dimension."""
    for tap in torch.cartesian_prod(*[torch.arange(n) for n in taps]).reshape(-1, len(taps)).tolist():
        starts = [k * dilation for k in tap]
        yield tap, tuple(slice(s, s + (n - 1) * stride + 1, stride) for s, n in zip(starts, size, strict=True))


class MyConvolution(Function):
    """A convolution of any number of dimensions without groups: the sum of one matrix product for each tap."""

    @staticmethod
    def forward(ctx, input, weight, bias, stride=1, padding=0, dilation=1):
        """Return the convolution, the bias added last."""
        ctx.save_for_backward(input, weight)
        ctx.settings = stride, padding, dilation
        dims = weight.dim() - 2
        x = F.pad(wide(input), [padding] * 2 * dims)
        size = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], weight.shape[2:], strict=True)]
        ctx.size = size
        total = torch.zeros(input.shape[0], weight.shape[0], *size)
        for tap, window in places(weight.shape[2:], size, *ctx.settings):
            w = wide(weight)[(..., *tap)]
            total += torch.einsum("oc,bc...->bo...", w, x[(..., *window)])
        return (total + wide(bias).reshape(-1, *[1] * dims)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients of input, weight and bias, tap by tap."""
        input, weight = ctx.saved_tensors
        (_, padding, _), g, dims = ctx.settings, wide(grad), weight.dim() - 2
        x = F.pad(wide(input), [padding] * 2 * dims)
        grad_x, grad_w = torch.zeros_like(x), torch.zeros_like(wide(weight))
        for tap, window in places(weight.shape[2:], ctx.size, *ctx.settings):
            grad_x[(..., *window)] += torch.einsum("oc,bo...->bc...", wide(weight)[(..., *tap)], g)
            grad_w[(..., *tap)] = torch.einsum("bos,bcs->oc", g.flatten(2), x[(..., *window)].flatten(2))
        inner = tuple(slice(padding, n - padding) for n in x.shape[2:])
        grad_bias = g.sum((0, *range(2, g.dim()))).to(weight.dtype)
        return grad_x[(..., *inner)].to(input.dtype), grad_w.to(weight.dtype), grad_bias, None, None, None


class FlippedTaps(MyConvolution):
    """A fault: the taps are reversed in the backward of the weight, as in a true convolution."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients, that of the weight mirrored."""
        grad_x, grad_w, *rest = MyConvolution.backward(ctx, grad)
        return grad_x, grad_w.flip(tuple(range(2, grad_w.dim()))), *rest


class ForgetsTheLastColumn(MyConvolution):
    """A fault: the gradient of the input lacks the last position where the stride does not divide the length."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients with the end of the input left out."""
        grad_x, *rest = MyConvolution.backward(ctx, grad)
        grad_x[..., -1] = 0
        return grad_x, *rest


class MyTransposedConvolution(Function):
    """A transposed convolution without groups: every input writes one window for each tap."""

    @staticmethod
    def forward(ctx, input, weight, bias, stride=1, padding=0, output_padding=0):
        """Return what all inputs have written, the ends cut off."""
        ctx.save_for_backward(input, weight)
        ctx.settings = stride, padding, output_padding
        x, dims = wide(input), weight.dim() - 2
        whole = [(n - 1) * stride + k + output_padding for n, k in zip(input.shape[2:], weight.shape[2:], strict=True)]
        total = torch.zeros(input.shape[0], weight.shape[1], *whole)
        for tap, window in places(weight.shape[2:], input.shape[2:], stride, padding, 1):
            total[(..., *window)] += torch.einsum("co,bc...->bo...", wide(weight)[(..., *tap)], x)
        inner = tuple(slice(padding, n - padding) for n in whole)
        return (total[(..., *inner)] + wide(bias).reshape(-1, *[1] * dims)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients: a convolution, and products with the windows."""
        input, weight = ctx.saved_tensors
        stride, padding, _ = ctx.settings
        g = wide(grad)
        whole = F.pad(g, [padding] * 2 * (weight.dim() - 2))
        grad_x, grad_w = torch.zeros_like(wide(input)), torch.zeros_like(wide(weight))
        for tap, window in places(weight.shape[2:], input.shape[2:], stride, padding, 1):
            grad_x += torch.einsum("co,bo...->bc...", wide(weight)[(..., *tap)], whole[(..., *window)])
            products = torch.einsum("bcs,bos->co", wide(input).flatten(2), whole[(..., *window)].flatten(2))
            grad_w[(..., *tap)] = products
        grad_bias = g.sum((0, *range(2, g.dim()))).to(weight.dtype)
        return grad_x.to(input.dtype), grad_w.to(weight.dtype), grad_bias, None, None, None


class OneTooFar(MyTransposedConvolution):
    """A fault: the result is cut off one position too late."""

    @staticmethod
    def forward(ctx, input, weight, bias, stride=1, padding=0, output_padding=0):
        """Return the result shifted by one."""
        return MyTransposedConvolution.forward(ctx, input, weight, bias, stride, padding, output_padding).roll(1, -1)


class MyCausalConvolution(Function):
    """A causal convolution of each channel, with what precedes the input; the state for the next call comes with it."""

    @staticmethod
    def forward(ctx, input, weight, bias, initial_state):
        """Return the output and the last positions."""
        whole = torch.cat([initial_state, input], -1)
        ctx.save_for_backward(whole, weight)
        length = input.shape[-1]
        total = sum(wide(whole)[..., k : k + length] * wide(weight)[:, k, None] for k in range(weight.shape[1]))
        return (total + wide(bias)[:, None]).to(input.dtype), whole[..., length:].clone()

    @staticmethod
    def backward(ctx, grad, grad_state):
        """Return the gradients; the state passes its own on to what it was copied from."""
        whole, weight = ctx.saved_tensors
        taps, length = weight.shape[1], grad.shape[-1]
        g, total = wide(grad), torch.zeros_like(wide(whole))
        grad_w = torch.stack([(g * wide(whole)[..., k : k + length]).sum((0, 2)) for k in range(taps)], -1)
        for k in range(taps):
            total[..., k : k + length] += g * wide(weight)[:, k, None]
        total[..., length:] += wide(grad_state)
        before = taps - 1
        rest = grad_w.to(weight.dtype), g.sum((0, 2)).to(weight.dtype), total[..., :before].to(whole.dtype)
        return total[..., before:].to(whole.dtype), *rest


class ForgetsTheState(MyCausalConvolution):
    """A fault: the gradient that comes in through the final state is left out."""

    @staticmethod
    def backward(ctx, grad, grad_state):
        """Return the gradients of the output alone."""
        return MyCausalConvolution.backward(ctx, grad, torch.zeros_like(grad_state))
