"""Kernels as people write them, right ones by unusual algorithms and wrong ones by small slips; no outside model.

References are the plain functions at the top; a kernel without a backward of its own is differentiated by autograd.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

Tensor = torch.Tensor
LOG2_E = 1.4426950408889634
LENGTHS = [5, 7]


def chain(x: Tensor) -> Tensor:
    for _ in range(8):
        x = torch.tanh(x) * 1.5 + 0.25
    return x


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], w, b, 1e-5)


def dense(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(x @ w.T + b)


def total(x: Tensor) -> Tensor:
    return x.sum(-1)


def variance(x: Tensor) -> Tensor:
    return x.var(-1)


def running_means(x: Tensor, g: Tensor) -> Tensor:
    means = [part.cumsum(0) / torch.arange(1, len(part) + 1)[:, None] for part in x.split(LENGTHS)]
    return torch.cat(means) * g


def dropout(x: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept, x / 0.7, torch.zeros_like(x))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v


def differentiated(forward, backward) -> type[torch.autograd.Function]:
    """Return a Function of a forward and a backward(*inputs, grad)."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            return backward(*ctx.saved_tensors, grad)

    return Kernel


# Right by another algorithm -------------------------------------------------------------------------------------------


def kahan_sum(x: Tensor) -> Tensor:
    sums, lost = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for column in x.unbind(-1):
        term = column - lost
        higher = sums + term
        sums, lost = higher, (higher - sums) - term
    return sums


def streaming_softmax_in_base_2(x: Tensor) -> Tensor:
    top, sums = torch.full(x.shape[:-1], -math.inf), torch.zeros(x.shape[:-1])
    for part in x.split(7, -1):
        higher = torch.maximum(top, part.amax(-1))
        sums = sums * torch.exp2((top - higher) * LOG2_E)
        sums = sums + torch.exp2((part - higher[..., None]) * LOG2_E).sum(-1)
        top = higher
    return torch.exp2((x - top[..., None]) * LOG2_E) / sums[..., None]


def product_in_five_parts(a: Tensor, b: Tensor) -> Tensor:
    return sum((x @ y for x, y in zip(a.chunk(5, 1), b.chunk(5, 0), strict=True)), torch.zeros(()))


def variance_by_updates(x: Tensor) -> Tensor:
    mean, squares = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for number, column in enumerate(x.unbind(-1), 1):
        step = column - mean
        mean = mean + step / number
        squares = squares + step * (column - mean)
    return squares / (x.shape[-1] - 1)


def _normalised(x: Tensor) -> tuple[Tensor, Tensor]:
    centred = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    return centred * scale, scale


def _recomputed(x: Tensor, w: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    value, scale = _normalised(x)
    part = grad * w
    inner = part - part.mean(-1, keepdim=True) - value * (part * value).mean(-1, keepdim=True)
    return scale * inner, (grad * value).sum(0), grad.sum(0)


def _attention_backward(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, again: float = 1.0) -> tuple[Tensor, ...]:
    scale = 1 / math.sqrt(q.shape[-1])
    weights = torch.softmax(q @ k.mT * scale, -1)
    inner = grad @ v.mT
    scores = weights * (inner - (inner * weights).sum(-1, keepdim=True)) * scale
    return scores @ k, (scores * again).mT @ q, weights.mT @ grad


RecomputedNorm = differentiated(layer_norm, _recomputed)
RecomputedAttention = differentiated(attention, _attention_backward)


def dropout_as_a_product(x: Tensor, kept: Tensor) -> Tensor:
    return x * (kept.to(x.dtype) * (1 / 0.7))


def attention_normalised_last(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * (LOG2_E / math.sqrt(q.shape[-1]))
    weights = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return (weights @ v) / weights.sum(-1, keepdim=True)


def running_means_by_triangles(x: Tensor, g: Tensor) -> Tensor:
    means = [torch.tril(torch.ones(len(part), len(part))) @ part / torch.arange(1, len(part) + 1)[:, None]
             for part in x.split(LENGTHS)]  # fmt: skip
    return torch.cat(means) * g


# Wrong by a slip ------------------------------------------------------------------------------------------------------


def chain_with_one_half_step(x: Tensor) -> Tensor:
    for number in range(8):
        step = torch.tanh(x)
        x = (step.half().float() if number == 5 else step) * 1.5 + 0.25
    return x


def softmax_whose_last_block_drops_a_term(x: Tensor) -> Tensor:
    power = torch.exp(x - x.amax(-1, keepdim=True))
    sums = power.sum(-1, keepdim=True)
    last = torch.arange(len(x))[:, None] >= len(x) - 8
    return power / torch.where(last, power[:, :-1].sum(-1, keepdim=True), sums)


def running_means_one_row_early(x: Tensor, g: Tensor) -> Tensor:
    parts = x[: LENGTHS[0]], x[LENGTHS[0] - 1 : -1]
    return torch.cat([part.cumsum(0) / torch.arange(1, len(part) + 1)[:, None] for part in parts]) * g


def product_in_a_half_accumulator(a: Tensor, b: Tensor) -> Tensor:
    sums = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float16)
    for number in range(a.shape[1]):
        sums = sums + a[:, number, None] * b[None, number]
    return sums


def rms_norm_without_eps(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * w


def _dense_backward(x: Tensor, w: Tensor, b: Tensor, grad: Tensor, *, axis: int, edge: bool) -> tuple[Tensor, ...]:
    value = dense(x, w, b)
    part = grad * (value >= 0 if edge else value > 0)
    return part @ w, part.T @ x, part.sum(axis)


BiasSummedOverTheWrongAxis = differentiated(dense, lambda *given: _dense_backward(*given, axis=1, edge=False))
MaskWithItsEdge = differentiated(dense, lambda *given: _dense_backward(*given, axis=0, edge=True))
ScaledTwice = differentiated(attention, lambda *given: _attention_backward(*given, again=8**-0.5))


def biased_variance(x: Tensor) -> Tensor:
    return x.var(-1, unbiased=False)


def _half_inner(x: Tensor, grad: Tensor) -> Tensor:
    value = torch.softmax(x, -1)
    return value * grad - value * (value * grad).sum(-1, keepdim=True).half().float()


HalfInnerSum = differentiated(softmax, _half_inner)


def layer_norm_with_one_coarse_row(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.cat([layer_norm(x[:-1], w, b), layer_norm(x[-1:].bfloat16().float(), w, b)])
