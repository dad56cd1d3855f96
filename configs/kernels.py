"""Small custom Functions with hand-written backwards: the kernels that the example specs check.

Each computes in float32 for 16-bit tensors and rounds every result once, which is what the catalogue's references ask
for. `HalfPrecisionMatmul` and `WrongSquare` are faults, kept to show what a violation looks like.
"""

import math

import torch
from torch import Tensor
from torch.autograd import Function


def wide(t: Tensor) -> Tensor:
    """Return a 16-bit tensor as float32, others as they are."""
    return t.float() if t.dtype.itemsize < 4 else t


class MyMatmul(Function):
    """C = A B."""

    @staticmethod
    def forward(ctx, A, B):
        """Return A B."""
        ctx.save_for_backward(A, B)
        return (wide(A) @ wide(B)).to(A.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return grad B^T and A^T grad."""
        A, B = ctx.saved_tensors
        return (wide(grad) @ wide(B).T).to(A.dtype), (wide(A).T @ wide(grad)).to(B.dtype)


class SplitMatmul(Function):
    """C = A B with K cut in blocks of 8: another order of the same sums, as legal as any."""

    @staticmethod
    def forward(ctx, A, B):
        """Return A B."""
        ctx.save_for_backward(A, B)
        blocks = zip(wide(A).split(8, 1), wide(B).split(8, 0), strict=True)
        return sum(a @ b for a, b in blocks).to(A.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return grad B^T and A^T grad."""
        return MyMatmul.backward(ctx, grad)


class HalfPrecisionMatmul(Function):
    """A fault: float32 in and out, but the product is taken in half precision."""

    @staticmethod
    def forward(ctx, A, B):
        """Return A B, to three digits."""
        ctx.save_for_backward(A, B)
        return (A.half() @ B.half()).to(A.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return grad B^T and A^T grad."""
        return MyMatmul.backward(ctx, grad)


class MyLinear(Function):
    """Y = X W^T + b."""

    @staticmethod
    def forward(ctx, input, weight, bias):
        """Return X W^T + b."""
        ctx.save_for_backward(input, weight)
        return (wide(input) @ wide(weight).T + wide(bias)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the three gradients; that of the bias is a sum over the rows, in float32."""
        input, weight = ctx.saved_tensors
        g = wide(grad)
        grad_input, grad_weight = g @ wide(weight), g.T @ wide(input)
        return grad_input.to(input.dtype), grad_weight.to(weight.dtype), g.sum(0).to(weight.dtype)


class MySoftmax(Function):
    """Softmax over the last dimension."""

    @staticmethod
    def forward(ctx, input):
        """Return exp(x - max) / sum; the float32 result is kept, not the rounded one."""
        x = wide(input)
        e = torch.exp(x - x.amax(-1, keepdim=True))
        y = e / e.sum(-1, keepdim=True)
        ctx.save_for_backward(y)
        return y.to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return y (grad - sum(y grad))."""
        (y,) = ctx.saved_tensors
        g = wide(grad)
        return (y * (g - (y * g).sum(-1, keepdim=True))).to(grad.dtype)


class MyLogSoftmax(Function):
    """Logarithm of the softmax over the last dimension."""

    @staticmethod
    def forward(ctx, input):
        """Return x - max - log(sum(exp(x - max)))."""
        x = wide(input)
        shifted = x - x.amax(-1, keepdim=True)
        result = shifted - torch.log(torch.exp(shifted).sum(-1, keepdim=True))
        ctx.save_for_backward(result)
        return result.to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return grad - softmax sum(grad)."""
        (result,) = ctx.saved_tensors
        g = wide(grad)
        return (g - torch.exp(result) * g.sum(-1, keepdim=True)).to(grad.dtype)


class MyCrossEntropy(Function):
    """Mean cross entropy of logits and class indices."""

    @staticmethod
    def forward(ctx, input, target):
        """Return the mean of logsumexp(x) - x[target]."""
        x = wide(input)
        lse = torch.logsumexp(x, -1)
        ctx.save_for_backward(input, target, lse)
        return (lse - x.gather(-1, target[:, None])[:, 0]).mean().to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return (softmax - onehot) grad / N."""
        input, target, lse = ctx.saved_tensors
        p = torch.exp(wide(input) - lse[:, None])
        p[torch.arange(len(target)), target] -= 1
        return (p * (wide(grad) / len(target))).to(input.dtype), None


class MyLayerNorm(Function):
    """Layer norm over the last dimension with weight and bias."""

    @staticmethod
    def forward(ctx, input, weight, bias):
        """Return (x - mean) / sqrt(var + 1e-5) * weight + bias; mean and 1/std are kept in float32."""
        x = wide(input)
        mean = x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(input, weight, mean, rstd)
        return ((x - mean) * rstd * wide(weight) + wide(bias)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients; those of weight and bias are sums over the rows."""
        input, weight, mean, rstd = ctx.saved_tensors
        g = wide(grad)
        xhat = (wide(input) - mean) * rstd
        h = g * wide(weight)
        grad_input = rstd * (h - h.mean(-1, keepdim=True) - xhat * (h * xhat).mean(-1, keepdim=True))
        return grad_input.to(input.dtype), (g * xhat).sum(0).to(weight.dtype), g.sum(0).to(weight.dtype)


class MyRmsNorm(Function):
    """RMS norm over the last dimension with weight; everything is recomputed in the backward."""

    @staticmethod
    def forward(ctx, input, weight):
        """Return x / sqrt(mean(x^2) + 1e-6) * weight."""
        ctx.save_for_backward(input, weight)
        x = wide(input)
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * wide(weight)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return both gradients."""
        input, weight = ctx.saved_tensors
        x, g = wide(input), wide(grad)
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        xhat, h = x * r, g * wide(weight)
        grad_input = r * (h - xhat * (h * xhat).mean(-1, keepdim=True))
        return grad_input.to(input.dtype), (g * xhat).sum(0).to(weight.dtype)


class MyFlashAttention(Function):
    """Causal attention in blocks of 16 keys, which keeps only the output and logsumexp."""

    @staticmethod
    def _scores(query, key, start):
        q, k = wide(query), wide(key)[..., start : start + 16, :]
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        last = torch.arange(q.shape[-2])[:, None] + key.shape[-2] - query.shape[-2]
        return scores.masked_fill(start + torch.arange(k.shape[-2]) > last, -math.inf)

    @staticmethod
    def forward(ctx, query, key, value, mask, causal):
        """Return the attention; the running maximum, sum and output are rescaled block by block."""
        q = wide(query)
        top = torch.full_like(q[..., :1], -math.inf)
        total, out = torch.zeros_like(top), torch.zeros_like(q)
        for start in range(0, key.shape[-2], 16):
            scores = MyFlashAttention._scores(query, key, start)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            p, keep = torch.exp(scores - new), torch.exp(top - new)
            total = total * keep + p.sum(-1, keepdim=True)
            out = out * keep + p @ wide(value)[..., start : start + 16, :]
            top = new
        out = (out / total).to(query.dtype)
        ctx.save_for_backward(query, key, value, out, top + torch.log(total))
        return out

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients, with delta from the stored output."""
        query, key, value, out, lse = ctx.saved_tensors
        q, k, v, g = wide(query), wide(key), wide(value), wide(grad)
        delta = (g * wide(out)).sum(-1, keepdim=True)
        scale = 1 / math.sqrt(q.shape[-1])
        grad_q, grad_k, grad_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for start in range(0, key.shape[-2], 16):
            block = (..., slice(start, start + 16), slice(None))
            p = torch.exp(MyFlashAttention._scores(query, key, start) - lse)
            ds = p * (g @ v[block].transpose(-1, -2) - delta)
            grad_q += ds @ k[block] * scale
            grad_k[block] = ds.transpose(-1, -2) @ q * scale
            grad_v[block] = p.transpose(-1, -2) @ g
        return grad_q.to(query.dtype), grad_k.to(key.dtype), grad_v.to(value.dtype), None, None


def sharp_attention_inputs(generator: torch.Generator) -> dict[str, object]:
    """Return float32 queries of size 4, so that a few keys have nearly all the weight, and more keys than queries."""
    query = 4 * torch.randn(2, 24, 8, generator=generator)
    key, value = torch.randn(2, 2, 40, 8, generator=generator)
    return {"query": query, "key": key, "value": value, "mask": None, "causal": True}


class MyGelu(Function):
    """GELU, erf form."""

    @staticmethod
    def forward(ctx, input):
        """Return x Phi(x)."""
        ctx.save_for_backward(input)
        x = wide(input)
        return (x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return grad (Phi(x) + x phi(x))."""
        (input,) = ctx.saved_tensors
        x = wide(input)
        cdf = 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))
        pdf = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return (wide(grad) * (cdf + x * pdf)).to(input.dtype)


class MySwiGlu(Function):
    """Silu(gate) times up."""

    @staticmethod
    def forward(ctx, gate, up):
        """Return silu(gate) up."""
        ctx.save_for_backward(gate, up)
        x = wide(gate)
        return (x * torch.sigmoid(x) * wide(up)).to(gate.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return both gradients from the recomputed sigmoid."""
        gate, up = ctx.saved_tensors
        x, u, g = wide(gate), wide(up), wide(grad)
        s = torch.sigmoid(x)
        return (g * u * s * (1 + x * (1 - s))).to(gate.dtype), (g * x * s).to(up.dtype)


class MyRelu(Function):
    """Max(x, 0)."""

    @staticmethod
    def forward(ctx, input):
        """Return max(x, 0)."""
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        """Return grad where x > 0."""
        (input,) = ctx.saved_tensors
        return grad * (input > 0)


class MySoftplus(Function):
    """Log(1 + exp(x)), the input itself above 20."""

    @staticmethod
    def forward(ctx, input):
        """Return the softplus."""
        ctx.save_for_backward(input)
        x = wide(input)
        return torch.where(x > 20, x, torch.log1p(torch.exp(x))).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return grad sigmoid(x), or grad above 20."""
        (input,) = ctx.saved_tensors
        x = wide(input)
        return (wide(grad) * torch.where(x > 20, 1.0, torch.sigmoid(x))).to(input.dtype)


class MyCube(Function):
    """The cube of x."""

    @staticmethod
    def forward(ctx, input):
        """Return x^3."""
        ctx.save_for_backward(input)
        x = wide(input)
        return (x * x * x).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return 3 x^2 grad."""
        (input,) = ctx.saved_tensors
        x = wide(input)
        return (wide(grad) * (3 * x * x)).to(input.dtype)


class WrongSquare(Function):
    """A fault: the gradient of x^2 as 3 x."""

    @staticmethod
    def forward(ctx, input):
        """Return x^2."""
        ctx.save_for_backward(input)
        return input * input

    @staticmethod
    def backward(ctx, grad):
        """Return 3 x grad, where 2 x grad is right."""
        (input,) = ctx.saved_tensors
        return 3 * input * grad


class RoundStraightThrough(torch.autograd.Function):
    """Rounds to multiples of 1/8; the gradient passes where the input is in [-1, 1], as if nothing had been rounded."""

    @staticmethod
    def forward(ctx, x):
        """Return the multiple of 1/8 that is nearest."""
        ctx.save_for_backward(x)
        return torch.round(x * 8) / 8

    @staticmethod
    def backward(ctx, grad):
        """Return grad where |x| <= 1, else 0."""
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


def rounded(x):
    """Round to multiples of 1/8; the derivative is zero wherever there is one."""
    return torch.round(x * 8) / 8


def straight_through(inputs, outputs, grads):
    """Declare the gradient that is meant."""
    (x,), (grad,) = inputs, grads
    return torch.where(x.abs() <= 1, grad, torch.zeros_like(grad))
