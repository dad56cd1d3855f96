"""Reductions over segments and bags of rows in terms of operations that have rules.

PyTorch's kernels go through each segment in turn. Here every row gets the number of its segment, and the rows are
collected by number; the segment after the last one takes what belongs to none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from kernels_core.decompositions.compute_format import wide

Tensor = torch.Tensor
_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -torch.inf, "min": torch.inf}
_SCATTER = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


def _numbers(offsets: Tensor, rows: int) -> Tensor:
    """Return the segment of each row, from the offsets (batch, segments + 1): -1 before the first."""
    places = torch.arange(rows, device=offsets.device).expand(offsets.shape[0], rows).contiguous()
    return torch.searchsorted(offsets.contiguous(), places, right=True) - 1


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Return the reduction of each segment along `axis`; an empty mean without a start is NaN (as in PyTorch)."""
    if offsets is None:
        offsets = F.pad(torch.cumsum(lengths, -1), (1, 0))  # type: ignore[arg-type]
    segments, rows, shape = offsets.shape[-1] - 1, data.shape[axis], data.shape
    offsets = offsets.reshape(-1, segments + 1)
    number = _numbers(offsets, rows)
    number = torch.where(number < 0, segments, number)
    number = number + torch.arange(offsets.shape[0], device=data.device).unsqueeze(1) * (segments + 1)
    flat = wide(data).reshape(offsets.shape[0] * rows, -1)
    start = flat.new_full(
        (offsets.shape[0] * (segments + 1), flat.shape[1]), _START[reduce] if initial is None else initial
    )
    target = number.reshape(-1, 1).expand(flat.shape)
    value = start.scatter_reduce(0, target, flat, _SCATTER[reduce]).reshape(offsets.shape[0], segments + 1, -1)
    value = value[:, :segments]
    if reduce == "mean":
        count = offsets.diff(dim=-1).unsqueeze(-1)
        value = value / count.to(value.dtype).clamp(min=1.0)
        value = torch.where(count == 0, torch.nan, value) if initial is None else value
    return value.reshape(*shape[:axis], segments, *shape[axis + 1 :]).to(data.dtype)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Return the sum, mean or maximum of the rows of each bag; an empty bag is zero (as in PyTorch)."""
    if max_norm is not None or scale_grad_by_freq:  # the table is written to, the gradient is no derivative
        return F.embedding_bag(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
                               per_sample_weights, include_last_offset, padding_idx)  # fmt: skip
    rows = input.reshape(-1)
    if offsets is None:
        bags = input.shape[0]
        bag = torch.arange(bags, device=input.device).unsqueeze(1).expand(input.shape).reshape(-1)
    else:
        bags = offsets.shape[0] - include_last_offset
        bag = _numbers(offsets.unsqueeze(0), rows.shape[0])[0].clamp(max=bags)
    if padding_idx is not None:
        bag = torch.where(rows == padding_idx % weight.shape[0], bags, bag)
    picked = wide(weight).index_select(0, rows)
    if per_sample_weights is not None:
        picked = picked * wide(per_sample_weights).reshape(-1, 1)
    return _bags(picked, bag, bags, mode).to(weight.dtype)


def _bags(picked: Tensor, bag: Tensor, bags: int, mode: str) -> Tensor:
    zeros = picked.new_zeros((bags + 1, picked.shape[1]))
    if mode == "max":
        target = bag.unsqueeze(1).expand(picked.shape)
        return zeros.scatter_reduce(0, target, picked, "amax", include_self=False)[:bags]
    value = zeros.index_add(0, bag, picked)
    if mode == "mean":
        count = torch.zeros_like(zeros[:, :1]).index_add(0, bag, torch.ones_like(picked[:, :1])).clamp(min=1.0)
        value = value * count.reciprocal()  # kernels divide or multiply; this grants both
    return value[:bags]


SEGMENTS: Mapping[Any, Callable[..., Any]] = {
    torch.segment_reduce: segment_reduce,
    F.embedding_bag: embedding_bag,
}
