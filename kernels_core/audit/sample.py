"""The elements of one tensor that the audit looks at: at most 65536, spread over all of it."""

from __future__ import annotations

import dataclasses
import math

import torch

from kernels_core.reference import Result

LIMIT = 1 << 16
_STRIDE = 2_654_435_761  # a prime near 2^32 / golden ratio: its multiples, modulo any size, meet all rows and columns


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
        mid = result.enclosure.mid.reshape(-1)[index]
        bound = taken(result.enclosure.bound.expand(result.enclosure.shape), index)
        actual = actual.detach().to(mid.device)
        error = (taken(actual, index).double() - mid).abs()
        usable = mid.isfinite() & bound.isfinite() & (bound > 0) & (error <= bound)
        if not bool(usable.any()):
            return None
        return cls(index[usable], mid[usable], bound[usable], actual)

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self.index)

    def errors(self, value: torch.Tensor) -> torch.Tensor:
        """Return (value - exact) / bound, at most 1: what is beyond took another branch; NaN where nothing is known."""
        return (taken(value, self.index).double() - self.mid).div_(self.bound).clamp_(-1.0, 1.0)

    def rms(self, value: torch.Tensor) -> float:
        """Return the root mean square of the errors that are known, 0 where none is."""
        errors = self.errors(value)
        known = errors[~errors.isnan()]
        return math.sqrt(float(known.square_().mean())) if len(known) else 0.0

    def mean(self, value: torch.Tensor) -> float:
        """Return the mean of `errors`: the signed bias."""
        return float(self.errors(value).mean())


def spread(size: int, device: torch.device, limit: int = LIMIT) -> torch.Tensor:
    """Return at most `limit` indices below `size`, evenly spread without a period."""
    if size <= limit:
        return torch.arange(size, device=device)
    return torch.arange(limit, device=device).mul_(_STRIDE).remainder_(size)


def taken(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the elements at flat (logical) indices without copying a tensor that is not contiguous."""
    if tensor.is_contiguous():
        return tensor.reshape(-1)[index]
    return tensor[torch.unravel_index(index, tensor.shape)]
