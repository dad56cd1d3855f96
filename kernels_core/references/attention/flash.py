"""The backward of flash attention, declared: what it computes from what the forward kept.

A flash kernel keeps only the output and logsumexp. Its backward rebuilds P = exp(S - logsumexp) and takes
delta = sum(dO O) from the *stored* output, where the derivative has sum(P dP): the same number, but in 16 bit with the
rounding of the stored output in it.

Source: Dao, FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning, algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.references.attention.scores import Pattern, blind, positions, repeated, scale_of, scores


def flash_backward(inputs: Sequence[Any], outputs: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of query, key, value (and of a floating mask, of slopes) from what a flash kernel keeps.

    With P = exp(S - logsumexp), dP = dO V^T, delta = sum(dO O) - dlogsumexp:
    dS = P (dP - delta), dQ = scale dS K, dK = scale dS^T Q, dV = P^T dO, dmask = dS; a softcap c multiplies dS, for dQ
    and dK, by 1 - tanh(x / c)^2.

    Args:
        inputs: the arguments of `attention`.
        outputs: (output,) or (output, logsumexp).
        grads: their upstream gradients.
    """
    return _of_attention(inputs, outputs, grads, narrow=False)


def flash_backward_narrow(
    inputs: Sequence[Any], outputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the gradients of `flash_backward` with P and dS rounded to the inputs' dtype before their products."""
    return _of_attention(inputs, outputs, grads, narrow=True)


def _of_attention(
    inputs: Sequence[Any], outputs: Sequence[Tensor], grads: Sequence[Tensor], narrow: bool
) -> tuple[Tensor, ...]:
    query, key, value, mask, causal, scale, alignment, *more = inputs
    pattern = Pattern(positions(query, key, alignment), mask, causal, scale, *more)
    return gradients((query, key, value), pattern, outputs, grads, narrow)


def gradients(
    inputs: Sequence[Tensor], pattern: Pattern, outputs: Sequence[Tensor], grads: Sequence[Tensor], narrow: bool
) -> tuple[Tensor, ...]:
    """Return the gradients of query, key, value and of what the pattern has that is floating."""
    query, key, value = inputs
    grad = wide(grads[0])
    q, k, v = wide(query), repeated(wide(key), query), repeated(wide(value), query)
    found, visible = scores(query, key, pattern)
    kept = outputs[1].unsqueeze(-1) if len(outputs) > 1 else torch.logsumexp(found, -1, keepdim=True)
    weights = torch.exp(found - kept.masked_fill(blind(visible), 0.0)).masked_fill(~visible, 0.0)
    delta = (grad * wide(outputs[0])).sum(-1, keepdim=True)
    if len(grads) > 1:
        delta = delta - grads[1].unsqueeze(-1)
    grad_scores = weights * (grad @ v.transpose(-1, -2) - delta)
    more = _of_pattern(grad_scores, pattern)
    grad_scores = _uncapped(grad_scores, query, key, pattern)
    if narrow:
        weights, grad_scores = wide(weights.to(query.dtype)), wide(grad_scores.to(query.dtype))
    factor = scale_of(query, pattern.scale)
    return (
        (grad_scores @ k * factor).to(query.dtype),
        _regrouped(grad_scores.transpose(-1, -2) @ q * factor, key).to(key.dtype),
        _regrouped(weights.transpose(-1, -2) @ grad, value).to(value.dtype),
        *more,
    )


def _of_pattern(grad_scores: Tensor, pattern: Pattern) -> list[Tensor]:
    """Return the gradients of a floating mask and of slopes."""
    mask, slopes, found = pattern.mask, pattern.slopes, []
    if mask is not None and mask.is_floating_point():
        found.append(_summed_to(grad_scores, mask).to(mask.dtype))
    if slopes is not None:
        each = -(grad_scores * pattern.positions.abs()).sum((-1, -2))
        found.append(_summed_to(each, slopes).to(slopes.dtype))
    return found


def _uncapped(grad_scores: Tensor, query: Tensor, key: Tensor, pattern: Pattern) -> Tensor:
    """Return the gradient of the scores before they were bent."""
    if pattern.softcap is None:
        return grad_scores
    products = wide(query) @ repeated(wide(key), query).transpose(-1, -2) * scale_of(query, pattern.scale)
    return grad_scores * (1 - torch.tanh(products / pattern.softcap).square())


def _regrouped(gradient: Tensor, t: Tensor) -> Tensor:
    """Return the gradient of `repeated`: the sum over the query heads that read each head."""
    if t.dim() < 3 or t.shape[-3] == gradient.shape[-3]:
        return gradient
    heads, groups = t.shape[-3], gradient.shape[-3] // t.shape[-3]
    return gradient.reshape(*gradient.shape[:-3], heads, groups, *gradient.shape[-2:]).sum(-3)


def _summed_to(gradient: Tensor, t: Tensor) -> Tensor:
    """Return the gradient summed over the dimensions along which `t` was broadcast."""
    lead = gradient.dim() - t.dim()
    broadcast = [d + lead for d, n in enumerate(t.shape) if n == 1 and gradient.shape[d + lead] != 1]
    dims = [*range(lead), *broadcast]
    return (gradient.sum(dims, keepdim=True) if dims else gradient).reshape(t.shape)
