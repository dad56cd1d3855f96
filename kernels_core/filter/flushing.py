"""Subnormal operands and results that may be taken for zero (knob flush_subnormals).

A value x with bound X of a format with smallest normal number N may lie below N where |x| - X < N; a kernel may then
read it, or leave it, as zero. What it may hold is the hull of the interval and zero:

    max(X, |x|)   where |x| - X < N

Every result of a step and every input passes here once, so that a later step finds its operands flushed already. What
is flushed inside of a sum is part of its own bound (arithmetic.py, eta_sum).
"""

from __future__ import annotations

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.formats import format_of


def flushed(value: Enclosure, dtype: torch.dtype) -> Enclosure:
    """Return the enclosure of a value of this dtype that may be flushed."""
    if not value.floating:
        return value
    normal, size, bound = format_of(dtype).smallest_normal, value.mid.abs(), value.bound_or_zero()
    below = (size - bound < normal) & (size > 0)
    if not bool(below.any()):
        return value
    return Enclosure(value.mid, torch.where(below, torch.maximum(size, bound), bound), value.unsure)
