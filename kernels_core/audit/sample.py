"""The elements of one tensor that the audit looks at: at most 65536, spread over all of it."""

from __future__ import annotations

import dataclasses
import functools

import torch

from kernels_core.audit.measures import Measures, different
from kernels_core.audit.parts import Part
from kernels_core.reference import Result

LIMIT = 1 << 16
_STRIDE = 2_654_435_761  # a prime near 2^32 / golden ratio: the fractions of its multiples fill [0, 1) evenly


@dataclasses.dataclass(frozen=True)
class Sample:
    """Elements with a finite, positive bound that the kernel's value lies in.

    Elements beyond their bound are no matter of precision: they are violated, or lie at a kink.

    Attributes:
        index: flat indices.
        mid, bound: of these elements, float64.
        actual: the kernel's tensor.
    """

    index: torch.Tensor
    mid: torch.Tensor
    bound: torch.Tensor
    actual: torch.Tensor

    @classmethod
    def of(cls, result: Result, actual: torch.Tensor) -> Sample | None:
        """Return the sample of one result, None where no element has an error that could be measured."""
        if not result.enclosure.floating or result.enclosure.bound is None:
            return None
        index = spread(actual.numel(), result.enclosure.mid.device)
        mid = taken(result.enclosure.mid, index)
        bound = taken(result.enclosure.bound.expand(result.enclosure.shape), index)
        actual = actual.detach().to(mid.device)
        error = (taken(actual, index).double() - mid).abs()
        usable = mid.isfinite() & bound.isfinite() & (bound > 0) & (error <= bound)
        if bool(usable.all()):
            return cls(index, mid, bound, actual) if len(index) else None
        if not bool(usable.any()):
            return None
        return cls(index[usable], mid[usable], bound[usable], actual)

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self.index)

    def errors(self, value: torch.Tensor | Part) -> torch.Tensor:
        """Return (value - exact) / bound, at most 1: what is beyond took another branch; NaN where nothing is known."""
        return (taken(value, self.index).double() - self.mid).div_(self.bound).clamp_(-1.0, 1.0)

    @functools.cached_property
    def own(self) -> torch.Tensor:
        """The errors of the kernel."""
        return self.errors(self.actual)

    @functools.cached_property
    def different(self) -> int:
        """How many errors of the kernel differ from each other."""
        return different(self.own)

    def measures(self, value: torch.Tensor | Part) -> Measures:
        """Return the sizes of the errors that are known."""
        return Measures.of(self.errors(value), self.mid / self.bound)


@functools.lru_cache(8)
def spread(size: int, device: torch.device, limit: int = LIMIT) -> torch.Tensor:
    """Return at most `limit` indices below `size`, ascending: one out of each of `limit` equal parts, without a period.

    A run of 2 ceil(size / limit) successive elements, such as a long row, contains one for certain. The tensor is kept
    and must not be changed.
    """
    if size <= limit:
        return torch.arange(size, device=device)
    edges = torch.arange(limit + 1, device=device).mul_(size).div_(limit, rounding_mode="floor")
    start, width = edges[:-1], edges.diff()
    fraction = torch.arange(limit, device=device).mul_(_STRIDE).bitwise_and_(0xFFFFFFFF)
    return start + (fraction * width >> 32)


def taken(tensor: torch.Tensor | Part, index: torch.Tensor) -> torch.Tensor:
    """Return the elements at flat (logical) indices without copying a tensor that is not contiguous."""
    if isinstance(tensor, Part):
        return tensor.at(index)
    if tensor.is_contiguous():
        return tensor.reshape(-1).index_select(0, index)
    return tensor[torch.unravel_index(index, tensor.shape)]
