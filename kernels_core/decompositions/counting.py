"""Counting: operations whose result has as many elements as integers say, in terms of those that have rules.

The number is read while tracing, on real tensors: it is part of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensor = torch.Tensor
aten = torch.ops.aten


def _bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Return the number, or the sum of weights, of each integer; PyTorch adds what is no float32 up in float64."""
    size = max(int(minlength), int(self.max()) + 1 if self.numel() else 0)
    if weights is None:
        each = torch.ones_like(self, dtype=torch.int64)
    else:
        each = weights if weights.dtype is torch.float32 else weights.to(torch.float64)
    return each.new_zeros(size).index_add(0, self, each)


def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Return the place of whom each element repeats: the first whose end, the sum so far, lies beyond it."""
    ends = torch.cumsum(repeats, 0)
    size = int(ends[-1]) if repeats.numel() else 0
    places = torch.arange(size, device=repeats.device)
    return torch.searchsorted(ends, places, right=True).to(repeats.dtype)


COUNTING: Mapping[Any, Callable[..., Any]] = {
    aten.bincount.default: _bincount,
    aten.repeat_interleave.Tensor: _repeat_interleave,
}
