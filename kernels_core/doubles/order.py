"""Order of double-double numbers: three-valued comparisons, choices, extrema.

hi = RN(hi + lo) makes pairs comparable part by part: hi < hi' implies a < b, since rounding is monotone.
"""

from __future__ import annotations

import torch

from kernels_core.doubles.arithmetic import negate, subtract
from kernels_core.doubles.number import DoubleDouble, is_zero, number, select, within

Tensor = torch.Tensor
Dims = tuple[int, ...]


def below(a: DoubleDouble, b: DoubleDouble) -> Tensor:
    """Return True where hi + lo of a is smaller than that of b."""
    return (a.hi < b.hi) | ((a.hi == b.hi) & (a.lo < b.lo))


def unordered(a: DoubleDouble, b: DoubleDouble) -> Tensor:
    """Return True where the radii leave open whether a < b, a = b or a > b (also where something is NaN)."""
    gap = subtract(a, b)
    apart = gap.hi.abs() > gap.rad * (1 + 2.0**-40)
    return ~(apart | ((a.rad + b.rad == 0) & (gap.hi == gap.hi)))


def maximum(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return the larger: within max(r_a, r_b) of the larger of the exact values."""
    found = select(below(a, b), b, a)
    nothing = a.hi * 0 + b.hi * 0  # a NaN of either stays
    return DoubleDouble(found.hi + nothing, found.lo, torch.maximum(a.rad, b.rad))


def minimum(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return the smaller."""
    return negate(maximum(negate(a), negate(b)))


def absolute(a: DoubleDouble) -> DoubleDouble:
    """|a|."""
    return DoubleDouble(a.hi.abs(), a.lo if is_zero(a.lo) else torch.where(a.hi < 0, -a.lo, a.lo), a.rad)


def largest(a: DoubleDouble, dims: Dims, *, keepdim: bool = False) -> DoubleDouble:
    """Return the maximum over dimensions."""
    hi = a.hi.amax(dims, keepdim=True)
    lo = torch.where(a.hi == hi, a.lo, -torch.inf).amax(dims, keepdim=True)
    rad = a.rad.expand(a.shape).amax(dims, keepdim=True)
    found = DoubleDouble(hi, torch.where(lo.isfinite(), lo, 0.0), rad)
    return found if keepdim else found.each(lambda part: part.squeeze(dims))


def sign(a: DoubleDouble) -> DoubleDouble:
    """Return -1, 0 or 1; unknown where the radius reaches zero."""
    known = (a.hi.abs() > a.rad) | (a.rad == 0)
    return DoubleDouble(a.hi.sign(), a.hi.new_zeros(()), within(0.0, known))


def nonnegative(a: DoubleDouble) -> DoubleDouble:
    """max(a, 0)."""
    return maximum(a, number(0.0))
