"""Kernels that look up, turn, drop, route and quantise, and a fault of each."""

import torch
from torch.autograd import Function


def wide(t):
    """Return a 16-bit tensor as float32, others as they are."""
    return t.float() if t.dtype.itemsize < 4 else t


class MyEmbedding(Function):
    """Rows of a table."""

    @staticmethod
    def forward(ctx, indices, weight):
        """Return the rows."""
        ctx.save_for_backward(indices)
        ctx.rows = weight.shape[0]
        return weight[indices]

    @staticmethod
    def backward(ctx, grad):
        """Add up the gradients of each row in float32."""
        (indices,) = ctx.saved_tensors
        total = torch.zeros(ctx.rows, grad.shape[-1])
        total.index_add_(0, indices.flatten(), wide(grad).flatten(0, -2))
        return None, total.to(grad.dtype)


class LastUseWins(MyEmbedding):
    """A fault: the gradient of a row that is used twice is that of one use."""

    @staticmethod
    def backward(ctx, grad):
        """Write, where it is to be added."""
        (indices,) = ctx.saved_tensors
        total = torch.zeros(ctx.rows, grad.shape[-1], dtype=grad.dtype)
        total[indices.flatten()] = grad.flatten(0, -2)
        return None, total


class MyRotaryEmbedding(Function):
    """Rotary embedding of halves; the backward is the rotation by the opposite angle."""

    @staticmethod
    def forward(ctx, input, cos, sin):
        """Return the turned pairs."""
        ctx.save_for_backward(cos, sin)
        return MyRotaryEmbedding._turned(input, wide(cos), wide(sin))

    @staticmethod
    def backward(ctx, grad):
        """Turn back; the angles are constants."""
        cos, sin = ctx.saved_tensors
        return MyRotaryEmbedding._turned(grad, wide(cos), -wide(sin)), None, None

    @staticmethod
    def _turned(t, c, s):
        x, y = wide(t).chunk(2, -1)
        return torch.cat([x * c - y * s, y * c + x * s], -1).to(t.dtype)


class TurnsForward(MyRotaryEmbedding):
    """A fault: the backward turns by the same angle as the forward."""

    @staticmethod
    def backward(ctx, grad):
        """Turn once more."""
        cos, sin = ctx.saved_tensors
        return MyRotaryEmbedding._turned(grad, wide(cos), wide(sin)), None, None


class MyDropout(Function):
    """Dropout with a given mask."""

    @staticmethod
    def forward(ctx, input, mask, p):
        """Return what is kept, scaled."""
        ctx.save_for_backward(mask)
        ctx.scale = 1 / (1 - p)
        return torch.where(mask, wide(input) * ctx.scale, 0.0).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradient of what is kept, scaled."""
        (mask,) = ctx.saved_tensors
        return torch.where(mask, wide(grad) * ctx.scale, 0.0).to(grad.dtype), None, None


class ScalesOnce(MyDropout):
    """A fault: the gradient is masked but not scaled."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradient of what is kept."""
        (mask,) = ctx.saved_tensors
        return torch.where(mask, grad, 0.0), None, None


class MyExperts(Function):
    """Mixture of experts: the tokens of each expert are gathered for one matrix product, and scattered back."""

    @staticmethod
    def forward(ctx, input, weight, assignment, gates):
        """Return the weighted sums of the experts' results."""
        ctx.save_for_backward(input, weight, assignment, gates)
        out = torch.zeros(input.shape[0], weight.shape[-1])
        for e, w in enumerate(wide(weight)):
            token, k = torch.where(assignment == e)
            out.index_add_(0, token, wide(gates)[token, k, None] * (wide(input)[token] @ w))
        return out.to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients of tokens, weights and gates, expert by expert."""
        input, weight, assignment, gates = ctx.saved_tensors
        g, x = wide(grad), wide(input)
        grad_x, grad_w, grad_gates = torch.zeros_like(x), torch.zeros_like(wide(weight)), torch.zeros_like(wide(gates))
        for e, w in enumerate(wide(weight)):
            token, k = torch.where(assignment == e)
            weighted = g[token] * wide(gates)[token, k, None]
            grad_x.index_add_(0, token, weighted @ w.T)
            grad_w[e] = x[token].T @ weighted
            grad_gates[token, k] = (g[token] * (x[token] @ w)).sum(-1)
        return grad_x.to(input.dtype), grad_w.to(weight.dtype), None, grad_gates.to(gates.dtype)


class ForgetsTheGate(MyExperts):
    """A fault: the gradient of the weights is not weighted by the gates."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients, those of the weights with gates of 1."""
        input, weight, assignment, _ = ctx.saved_tensors
        grad_x, grad_w, _, grad_gates = MyExperts.backward(ctx, grad)
        for e in range(len(weight)):
            token, _ = torch.where(assignment == e)
            grad_w[e] = (wide(input)[token].T @ wide(grad)[token]).to(weight.dtype)
        return grad_x, grad_w, None, grad_gates


class MyFakeQuantize(Function):
    """Quantise and dequantise; the gradient passes where nothing was clamped."""

    @staticmethod
    def forward(ctx, input, scale, zero_point, low, high):
        """Return the nearest multiple of the scale."""
        ctx.save_for_backward(input, scale)
        ctx.settings = zero_point, low, high
        q = torch.round(wide(input) / wide(scale)) + zero_point
        return ((torch.clamp(q, low, high) - zero_point) * wide(scale)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradient of the input; the scale is a constant."""
        input, scale = ctx.saved_tensors
        zero_point, low, high = ctx.settings
        q = torch.round(wide(input) / wide(scale)) + zero_point
        return torch.where((q >= low) & (q <= high), grad, 0.0), torch.zeros_like(scale), None, None, None


class PassesEverything(MyFakeQuantize):
    """A fault: the gradient passes where the input was clamped, too."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradient as it came."""
        return grad, torch.zeros_like(ctx.saved_tensors[1]), None, None, None


def dequantize(input, scale, zero_point):
    """Return whole numbers times their scale."""
    return (input - zero_point) * scale


def dequantize_without_zero_point(input, scale, zero_point):
    """A fault: the zero point is left out."""
    return input * scale
