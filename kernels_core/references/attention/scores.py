"""The scores of attention, which keys a query sees, and what becomes of both: the parts of every variant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.errors import UsageError, nearest

ALIGNMENTS = ("bottom-right", "top-left")


class Pattern(NamedTuple):
    """What is done to the scores, and which of them count.

    Attributes:
        positions: [Lq, Lk], the key's position less the query's.
        mask: boolean (True: visible) or floating (added).
        causal: hide later keys.
        scale: of the products, 1 / sqrt(D) where None.
        window: (left, right), both included, -1 for no limit.
        softcap: c of c tanh(x / c).
        slopes: [Hq], of the bias -slope |position|.
    """

    positions: Tensor
    mask: Tensor | None
    causal: bool
    scale: float | None
    window: Sequence[int] | None = None
    softcap: float | None = None
    slopes: Tensor | None = None


def positions(query: Tensor, key: Tensor, alignment: str) -> Tensor:
    """Return where the keys lie as the queries see it, [Lq, Lk]: negative before them, positive behind."""
    if alignment not in ALIGNMENTS:
        raise UsageError(
            f"alignment={alignment!r} is not known{nearest(alignment, ALIGNMENTS)}\nuse one of: {', '.join(ALIGNMENTS)}"
        )
    queries, keys = query.shape[-2], key.shape[-2]
    shift = keys - queries if alignment == "bottom-right" else 0
    return torch.arange(keys, device=query.device) - (torch.arange(queries, device=query.device) + shift).unsqueeze(-1)


def scores(query: Tensor, key: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Return scores, -inf where hidden but 0 in the rows of a query that sees nothing, and the boolean `visible`."""
    found = wide(query) @ repeated(wide(key), query).transpose(-1, -2) * scale_of(query, pattern.scale)
    if pattern.softcap is not None:
        found = pattern.softcap * torch.tanh(found / pattern.softcap)
    if pattern.slopes is not None:
        found = found - wide(pattern.slopes)[:, None, None] * pattern.positions.abs()
    visible, mask = _in_reach(pattern), pattern.mask
    if mask is not None and mask.is_floating_point():
        found, visible = found + wide(mask), visible & (mask != -math.inf)
    elif mask is not None:
        visible = visible & mask
    visible = visible.expand(found.shape)
    return found.masked_fill(~visible, -math.inf).masked_fill(blind(visible), 0.0), visible


def weights_of(scores: Tensor, visible: Tensor) -> Tensor:
    """Return the softmax of the scores, 0 for a query that sees nothing."""
    return torch.softmax(scores, -1).masked_fill(~visible, 0.0)


def output_of(weights: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """Return the weighted values in the dtype of the query."""
    return (weights @ repeated(wide(value), query)).to(query.dtype)


def logsumexp_of(scores: Tensor, visible: Tensor) -> Tensor:
    """Return the logsumexp of each query's scores, -inf for one that sees nothing."""
    return torch.logsumexp(scores, -1).masked_fill(blind(visible)[..., 0], -math.inf)


def blind(visible: Tensor) -> Tensor:
    """Return True, [..., Lq, 1], for the queries that see no key."""
    return ~visible.any(-1, keepdim=True)


def scale_of(query: Tensor, scale: float | None) -> float:
    """Return the scale of the scores."""
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def repeated(t: Tensor, query: Tensor) -> Tensor:
    """Return keys or values with each head repeated for the query heads that read it."""
    if t.dim() < 3 or t.shape[-3] == query.shape[-3]:
        return t
    groups = query.shape[-3] // t.shape[-3]
    return t.unsqueeze(-3).expand(*t.shape[:-2], groups, *t.shape[-2:]).flatten(-4, -3)


def _in_reach(pattern: Pattern) -> Tensor:
    place = pattern.positions
    visible = place <= 0 if pattern.causal else torch.ones_like(place, dtype=torch.bool)
    if pattern.window is not None:
        left, right = pattern.window
        visible = visible if left < 0 else visible & (place >= -left)
        visible = visible if right < 0 else visible & (place <= right)
    return visible
