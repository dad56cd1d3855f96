"""Attention: softmax(Q K^T scale + mask) V, with what its fused kernels keep for their backward.

Conventions, in the forward and in the backward:

- A boolean mask is True where the key is visible; a floating mask is added to the scaled scores and hides with -inf.
- `causal` with "bottom-right" alignment lets the last query see every key (query i sees key j <= i + Lk - Lq); with
  "top-left" the first query sees the first key only (j <= i). They differ where Lq != Lk.
- A query that sees no key has output 0, logsumexp -inf, and no gradient flows through it.
- Fewer key and value heads than query heads are repeated: query head h reads key head h // (Hq / Hk).

A flash kernel keeps only the output and logsumexp. Its backward rebuilds P = exp(S - logsumexp) and takes
delta = sum(dO O) from the *stored* output, where the derivative has sum(P dP): the same number, but in 16 bit with the
rounding of the stored output in it. `flash_backward` declares this route.

Source: Dao, FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning, algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels_core.composites import wide
from kernels_core.errors import UsageError, nearest

ALIGNMENTS = ("bottom-right", "top-left")


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    alignment: str = "bottom-right",
) -> Tensor:
    """Return softmax(query key^T scale + mask) value.

    Args:
        query: [..., Hq, Lq, D].
        key: [..., Hk, Lk, D], Hq a multiple of Hk.
        value: [..., Hk, Lk, Dv].
        mask: boolean (True: visible) or floating (added), broadcast to [..., Hq, Lq, Lk].
        causal: hide later keys.
        scale: 1 / sqrt(D) by default.
        alignment: of the causal mask, "bottom-right" or "top-left".
    """
    scores, visible = _scores(query, key, mask, causal, scale, alignment)
    return _output(_weights(scores, visible), query, value)


def attention_with_logsumexp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    alignment: str = "bottom-right",
) -> tuple[Tensor, Tensor]:
    """Return the output of `attention` and the logsumexp of each query's scores ([..., Hq, Lq], float32 or wider)."""
    scores, visible = _scores(query, key, mask, causal, scale, alignment)
    return _output(_weights(scores, visible), query, value), _logsumexp(scores, visible)


def attention_narrow(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    alignment: str = "bottom-right",
) -> Tensor:
    """Return `attention` with its weights rounded to the inputs' dtype before they meet `value`.

    Tensor cores take 16-bit operands, so 16-bit kernels that use them for P V round P.
    """
    return attention_narrow_with_logsumexp(query, key, value, mask, causal, scale, alignment)[0]


def attention_narrow_with_logsumexp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    alignment: str = "bottom-right",
) -> tuple[Tensor, Tensor]:
    """Return the output of `attention_narrow` and the logsumexp of each query's scores."""
    scores, visible = _scores(query, key, mask, causal, scale, alignment)
    weights = _weights(scores, visible).to(query.dtype)
    return _output(wide(weights), query, value), _logsumexp(scores, visible)


def flash_backward(inputs: Sequence[Any], outputs: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of query, key, value (and of a floating mask) from what a flash kernel keeps.

    With P = exp(S - logsumexp), dP = dO V^T, delta = sum(dO O) - dlogsumexp:
    dS = P (dP - delta), dQ = scale dS K, dK = scale dS^T Q, dV = P^T dO, dmask = dS.

    Args:
        inputs: the arguments of `attention`, all seven.
        outputs: (output,) or (output, logsumexp).
        grads: their upstream gradients.
    """
    return _flash_backward(inputs, outputs, grads, narrow=False)


def flash_backward_narrow(
    inputs: Sequence[Any], outputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the gradients of `flash_backward` with P and dS rounded to the inputs' dtype before their products."""
    return _flash_backward(inputs, outputs, grads, narrow=True)


def _flash_backward(
    inputs: Sequence[Any], outputs: Sequence[Tensor], grads: Sequence[Tensor], narrow: bool
) -> tuple[Tensor, ...]:
    query, key, value, mask, causal, scale, alignment = inputs
    out, grad = wide(outputs[0]), wide(grads[0])
    q, k, v = wide(query), _repeated(wide(key), query), _repeated(wide(value), query)
    scores, visible = _scores(query, key, mask, causal, scale, alignment)
    kept = outputs[1].unsqueeze(-1) if len(outputs) > 1 else torch.logsumexp(scores, -1, keepdim=True)
    weights = torch.exp(scores - kept.masked_fill(_blind(visible), 0.0)).masked_fill(~visible, 0.0)
    delta = (grad * out).sum(-1, keepdim=True)
    if len(grads) > 1:
        delta = delta - grads[1].unsqueeze(-1)
    grad_scores = weights * (grad @ v.transpose(-1, -2) - delta)
    grad_mask = [_summed_to(grad_scores, mask).to(mask.dtype)] if mask is not None and mask.is_floating_point() else []
    if narrow:
        weights, grad_scores = wide(weights.to(query.dtype)), wide(grad_scores.to(query.dtype))
    factor = _scale(query, scale)
    return (
        (grad_scores @ k * factor).to(query.dtype),
        _regrouped(grad_scores.transpose(-1, -2) @ q * factor, key).to(key.dtype),
        _regrouped(weights.transpose(-1, -2) @ grad, value).to(value.dtype),
        *grad_mask,
    )


def _scores(
    query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, scale: float | None, alignment: str
) -> tuple[Tensor, Tensor]:
    """Return scores, -inf where hidden but 0 in the rows of a query that sees nothing, and the boolean `visible`."""
    scores = wide(query) @ _repeated(wide(key), query).transpose(-1, -2) * _scale(query, scale)
    visible = _causal(scores, alignment) if causal else torch.ones_like(scores, dtype=torch.bool)
    if mask is not None and mask.is_floating_point():
        scores, visible = scores + wide(mask), visible & (mask != -math.inf)
    elif mask is not None:
        visible = visible & mask
    visible = visible.expand(scores.shape)
    return scores.masked_fill(~visible, -math.inf).masked_fill(_blind(visible), 0.0), visible


def _weights(scores: Tensor, visible: Tensor) -> Tensor:
    return torch.softmax(scores, -1).masked_fill(~visible, 0.0)


def _output(weights: Tensor, query: Tensor, value: Tensor) -> Tensor:
    return (weights @ _repeated(wide(value), query)).to(query.dtype)


def _logsumexp(scores: Tensor, visible: Tensor) -> Tensor:
    return torch.logsumexp(scores, -1).masked_fill(_blind(visible)[..., 0], -math.inf)


def _blind(visible: Tensor) -> Tensor:
    """Return True, [..., Lq, 1], for the queries that see no key."""
    return ~visible.any(-1, keepdim=True)


def _causal(scores: Tensor, alignment: str) -> Tensor:
    if alignment not in ALIGNMENTS:
        raise UsageError(
            f"alignment={alignment!r} is not known{nearest(alignment, ALIGNMENTS)}\nuse one of: {', '.join(ALIGNMENTS)}"
        )
    queries, keys = scores.shape[-2:]
    diagonal = keys - queries if alignment == "bottom-right" else 0
    return torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril(diagonal)


def _scale(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _repeated(t: Tensor, query: Tensor) -> Tensor:
    """Return keys or values with each head repeated for the query heads that read it."""
    if t.dim() < 3 or t.shape[-3] == query.shape[-3]:
        return t
    groups = query.shape[-3] // t.shape[-3]
    return t.unsqueeze(-3).expand(*t.shape[:-2], groups, *t.shape[-2:]).flatten(-4, -3)


def _regrouped(gradient: Tensor, t: Tensor) -> Tensor:
    """Return the gradient of `_repeated`: the sum over the query heads that read each head."""
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
