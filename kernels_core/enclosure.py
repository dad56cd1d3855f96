"""The value that flows through a program: a float64 midpoint and what rounding may do around it.

One rule that every other page leans on: a legal value of the element lies in [exact - bound, exact + bound] before
the final rounding, and |mid - exact| <= rad, where `rad` is tracked apart (see filter/run.py). `bound` is never NaN and
never negative.

Special values:
    mid = +-inf or NaN, bound = 0      the exact answer is this infinity, or is NaN
    mid = +-inf,        bound = inf    the exact answer is finite but beyond float64, or beyond every narrower format
                                       as a product or sum of one that is (filter/overflow.py)
    anything else with  bound = inf    nothing is known
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Enclosure:
    """A tensor with its uncertainty.

    Attributes:
        mid: float64 for floating tensors; the tensor itself for integers and booleans.
        bound: float64 of the same shape, >= 0; None where it is zero everywhere. None for integers.
        unsure: for integers and booleans, True where the value depends on roundings; None where it never does.
        low, rad: in a double-double evaluation (doubles/evaluation.py), |mid + low - exact| <= rad, None for zero. For
            integers and booleans `rad` is infinite where it is not known whether mid is the exact value.
    """

    mid: torch.Tensor
    bound: torch.Tensor | None = None
    unsure: torch.Tensor | None = None
    low: torch.Tensor | None = None
    rad: torch.Tensor | None = None

    @property
    def floating(self) -> bool:
        """True for floating tensors, False for integers and booleans."""
        return self.mid.is_floating_point()

    @property
    def shape(self) -> torch.Size:
        """Shape of the tensor."""
        return self.mid.shape

    def bound_or_zero(self) -> torch.Tensor:
        """Return the bound as a tensor (a zero of shape () where it is None)."""
        return self.bound if self.bound is not None else self.mid.new_zeros((), dtype=torch.float64)

    def each_part(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Enclosure:
        """Return the enclosure whose parts, given the shape of mid, are moved alike by `function`."""
        parts = (self.mid, self.bound, self.unsure, self.low, self.rad)
        return Enclosure(*(None if part is None else function(part.expand(self.shape)) for part in parts))  # type: ignore[arg-type]

    def magnitude_upper(self) -> torch.Tensor:
        """Return |mid| + bound: no legal value is larger (up to the float64 rounding of this sum)."""
        magnitude = self.mid.abs()
        return magnitude if self.bound is None else magnitude + self.bound

    def certain(self) -> torch.Tensor:
        """Return True (shape of mid, or ()) where no rounding can change the value."""
        if self.floating:
            return torch.ones((), dtype=torch.bool) if self.bound is None else self.bound == 0
        return torch.ones((), dtype=torch.bool) if self.unsure is None else ~self.unsure


def exactly(value: torch.Tensor) -> Enclosure:
    """Return the enclosure of a tensor that is known exactly (float64 holds every narrower format)."""
    return Enclosure(value.to(torch.float64) if value.is_floating_point() else value)


def nothing_known(value: torch.Tensor) -> Enclosure:
    """Return the enclosure of a tensor of which the shape and dtype alone are known."""
    if value.is_floating_point():
        return Enclosure(value, torch.full_like(value, torch.inf))
    return Enclosure(value, None, torch.ones_like(value, dtype=torch.bool))


def all_finite(tensor: torch.Tensor) -> bool:
    """Return True where no element is infinite or NaN, in one pass (a finite overflow of the sum counts as not)."""
    return math.isfinite(float(tensor.sum())) if tensor.numel() else True


def hull(condition: Enclosure, first: Enclosure, second: Enclosure, *, centred: bool = False) -> Enclosure:
    """Return `where(condition, first, second)`; where the condition is unsure, what contains both.

    The midpoint is that of the side that float64 chose, so bound = max(bound_i + |mid_i - mid|) contains both sides.
    `centred`, for the runs at kinks and at NaN, whose midpoints stand for no exact value: the midpoint of what both
    sides reach, so that nothing beyond is contained.
    """
    mid = torch.where(condition.mid, first.mid, second.mid)
    if not mid.is_floating_point():
        return Enclosure(mid, None, _unsure_choice(condition, first, second))
    bound = None
    if first.bound is not None or second.bound is not None:
        bound = torch.where(condition.mid, first.bound_or_zero(), second.bound_or_zero())
    if condition.unsure is None or not bool(condition.unsure.any()):
        return Enclosure(mid, bound)
    if centred:
        sides = (first, second)
        low = torch.minimum(*(side.mid - side.bound_or_zero() for side in sides))
        high = torch.maximum(*(side.mid + side.bound_or_zero() for side in sides))
        centre = (low + high) / 2
        mid = torch.where(condition.unsure & centre.isfinite(), centre, mid)
    reach = [
        torch.where(side.mid == mid, 0.0, (side.mid - mid).abs()) + side.bound_or_zero() for side in (first, second)
    ]
    both = torch.maximum(*reach) * (1 + 2.0**-48)
    both = torch.where(both.isnan(), torch.inf, both)
    settled = bound if bound is not None else both.new_zeros(())
    return Enclosure(mid, torch.where(condition.unsure, both, settled))


def _unsure_choice(condition: Enclosure, first: Enclosure, second: Enclosure) -> torch.Tensor | None:
    if condition.unsure is None and first.unsure is None and second.unsure is None:
        return None
    no = condition.mid.new_zeros((), dtype=torch.bool)
    chosen = torch.where(
        condition.mid, no if first.unsure is None else first.unsure, no if second.unsure is None else second.unsure
    )
    if condition.unsure is None:
        return chosen
    return chosen | (condition.unsure & ((first.mid != second.mid) | chosen))
