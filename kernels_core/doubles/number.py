"""A real number as the sum of two float64 tensors, and how far it may be off.

    |hi + lo - exact| <= rad,   hi = RN(hi + lo), so |lo| <= 2^-53 |hi|

Everything is a tensor that broadcasts to the shape of `hi`. Where one of the three is infinite or NaN nothing is known,
but for a certain infinity, with lo = rad = 0: the element is left to others. Whatever breaks on the way (an overflow,
0 / 0) leaves an infinity or NaN in `lo` or `rad`, and every operation on such an operand gives one again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import flint
import torch

Tensor = torch.Tensor

U = 2.0**-53  # unit roundoff of float64
ETA = 2.0**-1074
TINY = 2.0**-900  # the errors of smaller results, 2^-106 of them and less, are not normal numbers any more
# A rad is a sum of a few dozen non-negative products evaluated in float64: at most 60 roundings on any path.
INFLATE = 1 + 2.0**-46


@dataclasses.dataclass(frozen=True, slots=True)
class DoubleDouble:
    """See the module."""

    hi: Tensor
    lo: Tensor
    rad: Tensor

    @property
    def shape(self) -> torch.Size:
        """Shape of the tensor."""
        return self.hi.shape

    def each(self, function: Callable[[Tensor], Tensor]) -> DoubleDouble:
        """Return the number whose three parts are moved alike by `function`."""
        return DoubleDouble(*(function(part.expand(self.shape)) for part in (self.hi, self.lo, self.rad)))

    def narrow(self, dim: int, start: int, length: int) -> DoubleDouble:
        """Return part of the tensor along a dimension, as `torch.Tensor.narrow`."""
        return self.each(lambda part: part.narrow(dim, start, length))

    def unsqueeze(self, dim: int) -> DoubleDouble:
        """Return the tensor with one more dimension of size 1."""
        return self.each(lambda part: part.unsqueeze(dim))

    def abs_upper(self) -> Tensor:
        """Return |hi| + rad (up to a factor INFLATE): the exact value is no larger than (1 + 2^-52) times this."""
        return self.hi.abs() + self.rad


def is_zero(part: Tensor) -> bool:
    """Return True where a low part or a radius is one zero for all elements, as that of an exact operand is."""
    if any(step and n > 1 for step, n in zip(part.stride(), part.shape, strict=True)):
        return False
    return bool(part.numel()) and float(part[(0,) * part.dim()]) == 0


def exactly(value: Tensor) -> DoubleDouble:
    """Return float64 values as they are."""
    zero = value.new_zeros(())
    return DoubleDouble(value, zero, zero)


def number(value: float) -> DoubleDouble:
    """Return one float64 number."""
    return exactly(torch.tensor(value, dtype=torch.float64))


def constant(value: flint.arb) -> DoubleDouble:
    """Return a constant that FLINT encloses to 200 bits or more."""
    hi, lo = halves(value)
    return DoubleDouble(*(torch.tensor(part, dtype=torch.float64) for part in (hi, lo, abs(hi) * 2.0**-105)))


def halves(value: flint.arb) -> tuple[float, float]:
    """Return (hi, lo) with |hi + lo - value| <= 2^-105 |hi|, for a ball of 150 bits or more."""
    hi = float(value.mid())
    return hi, float((value - hi).mid())


def within(rad: float, where: Tensor) -> Tensor:
    """Return a radius that holds where the condition holds, infinite elsewhere."""
    return torch.full_like(where, torch.inf, dtype=torch.float64).masked_fill_(where, rad)


def unknown(value: DoubleDouble, where: Tensor) -> DoubleDouble:
    """Return the number with nothing known about the elements `where`."""
    return DoubleDouble(value.hi, value.lo, torch.where(where, torch.inf, value.rad)) if bool(where.any()) else value


def select(condition: Tensor, a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a where the condition holds, else b."""
    return DoubleDouble(*(torch.where(condition, x, y) for x, y in ((a.hi, b.hi), (a.lo, b.lo), (a.rad, b.rad))))
