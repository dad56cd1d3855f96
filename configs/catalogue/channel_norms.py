"""Group, batch and instance norm with hand-written backwards, and a fault of each."""

import torch
from torch.autograd import Function


def wide(t):
    """Return a 16-bit tensor as float32, others as they are."""
    return t.float() if t.dtype.itemsize < 4 else t


def per_channel(parameter, like):
    """Return one number per channel, shaped to meet [batch, channels, ...]."""
    return wide(parameter).reshape(1, -1, *[1] * (like.dim() - 2))


class MyGroupNorm(Function):
    """Group norm that keeps mean and 1/std of each group in float32."""

    @staticmethod
    def forward(ctx, input, num_groups, weight, bias):
        """Return the normalised groups times weight plus bias."""
        x = wide(input).reshape(input.shape[0], num_groups, -1)
        mean = x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(input, weight, mean, rstd)
        xhat = ((x - mean) * rstd).reshape(input.shape)
        return (xhat * per_channel(weight, xhat) + per_channel(bias, xhat)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the three gradients; those of weight and bias are sums over batch and positions."""
        input, weight, mean, rstd = ctx.saved_tensors
        groups = mean.shape[1]
        x, g = wide(input).reshape(input.shape[0], groups, -1), wide(grad)
        xhat = (x - mean) * rstd
        h = (g * per_channel(weight, g)).reshape(x.shape)
        grad_x = rstd * (h - h.mean(-1, keepdim=True) - xhat * (h * xhat).mean(-1, keepdim=True))
        rest = (0, *range(2, g.dim()))
        grad_weight = (g * xhat.reshape(g.shape)).sum(rest)
        return grad_x.reshape(g.shape).to(input.dtype), None, grad_weight.to(weight.dtype), g.sum(rest).to(weight.dtype)


class StatisticsPerChannel(MyGroupNorm):
    """A fault: the statistics are of single channels, where a group has several."""

    @staticmethod
    def forward(ctx, input, num_groups, weight, bias):
        """Return an instance norm."""
        return MyGroupNorm.forward(ctx, input, input.shape[1], weight, bias)


class MyBatchNorm(Function):
    """Batch norm in training."""

    @staticmethod
    def forward(ctx, input, weight, bias):
        """Return the normalised channels times weight plus bias."""
        x, rest = wide(input), (0, *range(2, input.dim()))
        mean = x.mean(rest, keepdim=True)
        rstd = torch.rsqrt((x - mean).square().mean(rest, keepdim=True) + 1e-5)
        ctx.save_for_backward(input, weight, mean, rstd)
        return ((x - mean) * rstd * per_channel(weight, x) + per_channel(bias, x)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the three gradients."""
        input, weight, mean, rstd = ctx.saved_tensors
        g, rest = wide(grad), (0, *range(2, grad.dim()))
        xhat = (wide(input) - mean) * rstd
        h = g * per_channel(weight, g)
        grad_x = rstd * (h - h.mean(rest, keepdim=True) - xhat * (h * xhat).mean(rest, keepdim=True))
        return grad_x.to(input.dtype), (g * xhat).sum(rest).to(weight.dtype), g.sum(rest).to(weight.dtype)


class StatisticsAsConstants(MyBatchNorm):
    """A fault: the backward takes mean and variance for constants, as it may in evaluation only."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients of evaluation."""
        input, weight, _, rstd = ctx.saved_tensors
        _, grad_weight, grad_bias = MyBatchNorm.backward(ctx, grad)
        return (wide(grad) * per_channel(weight, grad) * rstd).to(input.dtype), grad_weight, grad_bias


class MyInstanceNorm(Function):
    """Instance norm: a group norm with a group for each channel."""

    @staticmethod
    def forward(ctx, input, weight, bias):
        """Return the normalised channels times weight plus bias."""
        return MyGroupNorm.forward(ctx, input, input.shape[1], weight, bias)

    @staticmethod
    def backward(ctx, grad):
        """Return the three gradients."""
        grad_input, _, grad_weight, grad_bias = MyGroupNorm.backward(ctx, grad)
        return grad_input, grad_weight, grad_bias


class UnbiasedVariance(MyInstanceNorm):
    """A fault: the variance is divided by n - 1."""

    @staticmethod
    def forward(ctx, input, weight, bias):
        """Return channels normalised by the unbiased variance."""
        x, rest = wide(input), tuple(range(2, input.dim()))
        mean = x.mean(rest, keepdim=True)
        rstd = torch.rsqrt(x.var(rest, keepdim=True) + 1e-5)
        ctx.save_for_backward(input, weight, mean.flatten(2), rstd.flatten(2))
        return ((x - mean) * rstd * per_channel(weight, x) + per_channel(bias, x)).to(input.dtype)
