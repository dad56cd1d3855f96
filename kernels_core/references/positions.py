"""Tables and positions: embedding and rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def embedding(indices: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Return weight[indices]; the gradient of a row is the sum over its uses, in float32, rounded once.

    Args:
        indices: whole numbers of any shape, each below V.
        weight: [V, D].
        padding_idx: a row that is read like any other and gets no gradient.
    """
    return F.embedding(indices, wide(weight), padding_idx).to(weight.dtype)


def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Return each pair (x, y) of the last dimension turned by its angle: (x cos - y sin, y cos + x sin).

    Args:
        input: [..., L, D], D even.
        cos: [..., L, D / 2], broadcast to the input's pairs.
        sin: [..., L, D / 2].
        interleaved: pairs are neighbours (GPT-J), else elements D / 2 apart (GPT-NeoX, Llama).
    """
    x = wide(input)
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    c, s = wide(cos), wide(sin)
    turned = first * c - second * s, second * c + first * s
    return (torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)).to(input.dtype)


ENTRIES = {
    "embedding": Reference(embedding, "embedding"),
    "rotary_embedding": Reference(rotary_embedding, "rotary_embedding"),
}
