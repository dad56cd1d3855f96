"""A tensor of which only some stretches are known: enough to know the size of its errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

Tensor = torch.Tensor


class Part:
    """Values of some stretches of a tensor in logical order; the others are NaN."""

    def __init__(self, ranges: Sequence[tuple[int, int]], values: Sequence[Tensor]) -> None:
        """Hold the values of stretches [start, stop) of flat indices, in ascending order."""
        self.values = torch.cat([value.reshape(-1) for value in values])
        bounds = torch.tensor(ranges, dtype=torch.int64, device=self.values.device)
        self.start, self.stop = bounds[:, 0].contiguous(), bounds[:, 1].contiguous()
        lengths = self.stop - self.start
        self.offset = lengths.cumsum(0) - lengths

    def at(self, index: Tensor) -> Tensor:
        """Return the values at flat indices, which ascend."""
        first, last = (torch.searchsorted(index, edge) for edge in (self.start, self.stop))
        counts = last - first  # of indices within each stretch

        def repeated(value: Tensor) -> Tensor:
            return value.repeat_interleave(counts)

        known = torch.arange(int(counts.sum()), device=index.device) + repeated(first - counts.cumsum(0) + counts)
        found = self.values.new_full(index.shape, torch.nan)
        found[known] = self.values[index[known] + repeated(self.offset - self.start)]
        return found


def flat_range(piece: tuple[slice, ...], shape: Sequence[int]) -> tuple[int, int]:
    """Return the flat indices [start, stop) of a piece: single outer indices, a range, then everything."""
    start, size = 0, math.prod(shape[len(piece) :])
    for part, length in zip(reversed(piece), reversed(shape[: len(piece)]), strict=True):
        start += part.start * size
        size *= length
    return start, start + math.prod(part.stop - part.start for part in piece) * math.prod(shape[len(piece) :])
