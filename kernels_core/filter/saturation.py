"""What becomes of a value beyond a format without infinities: part of the exact value, in float64 and in FLINT.

A cast to float8_e4m3fn that the reference makes saturates as PyTorch's does: x means clamp(x, -448, 448), infinities
included; so does a result that is returned in it. What PyTorch's derivative formulas store in between is not clamped:
as with every intermediate, a gradient that leaves the format on its way is not granted.
In the fnuz formats an infinity is NaN; a finite value beyond them is decided with the result (coverage.py).
"""

from __future__ import annotations

import math

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import Numbers, Objects
from kernels_core.filter.arithmetic import DISCRETE
from kernels_core.formats import Format, format_of


def limited(value: Enclosure, dtype: torch.dtype) -> Enclosure:
    """Return the enclosure of values stored in a dtype."""
    fmt = _without_infinities(dtype)
    if fmt is None:
        return value
    if fmt.saturates:
        return _clamped(value, fmt.max_finite)
    infinite = value.mid.isinf() & value.certain()
    return Enclosure(value.mid.masked_fill(infinite, fmt.overflow), value.bound) if bool(infinite.any()) else value


def _without_infinities(dtype: torch.dtype) -> Format | None:
    fmt = format_of(dtype) if dtype.is_floating_point and dtype.itemsize == 1 else None
    return None if fmt is None or fmt.has_inf else fmt


def _clamped(value: Enclosure, limit: float) -> Enclosure:
    """Clamping is monotone: legal values lie between clamp(mid - b) and clamp(mid + b), b = (1 + 2^-24) bound.

    b allows for the distance of mid from the exact value, which stays below 2^-26 of the bound that is returned: where
    the clamp moves just one of the two, the limit lies between them and the bound reaches b on the other side.
    Where nothing is known (bound inf) a legal value may be NaN, which stays NaN.
    """
    mid = value.mid.clamp(-limit, limit)
    if value.bound is None:
        return Enclosure(mid)
    reach = value.bound * DISCRETE
    above, below = (value.mid + reach).clamp(-limit, limit) - mid, mid - (value.mid - reach).clamp(-limit, limit)
    known = value.mid.isfinite() & value.bound.isfinite()
    return Enclosure(mid, torch.where(known, torch.maximum(above, below), value.bound))


def limited_exactly(values: Objects, dtype: torch.dtype, numbers: Numbers) -> Objects:
    """Return exact values as stored in a dtype."""
    fmt = _without_infinities(dtype)
    if fmt is None or (numbers.rational and not fmt.saturates):
        return values
    if not fmt.saturates:
        found = numbers.each(lambda v: flint.arb(math.nan) if numbers.kind(v) == "infinite" else v, values)
    else:
        top = numbers.real(numbers.of(fmt.max_finite))
        found = numbers.each(lambda v: numbers.maximum(numbers.minimum(numbers.real(v), top), -top), values)
    return np.asarray(found, dtype=object)
