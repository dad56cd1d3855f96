"""Scaled dot product attention as plain arithmetic."""

from __future__ import annotations

import math

import torch

from kernels_core.decompositions.compute_format import wide


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention as PyTorch's math backend defines it, in the compute format (a fully masked row is NaN)."""
    if dropout_p:
        raise ValueError("attention with dropout is random: give the mask and multiply by it")
    q, k, v = wide(query), wide(key), wide(value)
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scale = 1 / math.sqrt(max(1, q.shape[-1])) if scale is None else scale  # products of no factors are 0 at any scale
    scores = q @ k.transpose(-1, -2) * scale
    if is_causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, -math.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + wide(attn_mask)
    return (torch.softmax(scores, -1) @ v).to(query.dtype)
