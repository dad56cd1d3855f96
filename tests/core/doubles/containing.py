"""Does a double-double number contain the value that FLINT computes?"""

from __future__ import annotations

import math
from collections.abc import Callable

import flint
import torch

from kernels_core.doubles.number import DoubleDouble

Tensor = torch.Tensor


def flat(part: Tensor, number: DoubleDouble) -> list[float]:
    """Return one part of a number as floats, one for each element."""
    values: list[float] = part.expand(number.shape).reshape(-1).tolist()
    return values


def exact(number: DoubleDouble) -> list[flint.arb]:
    """Return hi + lo of each element."""
    return [flint.arb(h) + flint.arb(x) for h, x in zip(flat(number.hi, number), flat(number.lo, number), strict=True)]


def require_contains(found: DoubleDouble, values: list[flint.arb]) -> tuple[float, int]:
    """Require |hi + lo - value| <= rad for every known element.

    Returns:
        The largest rad / |value| of known elements, and how many elements are unknown.
    """
    widest, unknown = 0.0, 0
    parts = zip(flat(found.hi, found), flat(found.lo, found), flat(found.rad, found), values, strict=True)
    for place, (hi, lo, rad, value) in enumerate(parts):
        if not (math.isfinite(hi) and math.isfinite(lo) and math.isfinite(rad)):
            unknown += 1
            continue
        error = abs(flint.arb(hi) + flint.arb(lo) - value)
        assert error <= flint.arb(rad), f"element {place}: {hi!r} + {lo!r} is off {value} by {error}, rad {rad!r}"
        if value != 0 and float(abs(value)) > 2.0**-850:
            widest = max(widest, rad / float(abs(value)))
    return widest, unknown


def numbers(values: Tensor, seed: int = 0) -> DoubleDouble:
    """Return numbers with these values and random low parts."""
    share = torch.rand(values.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5
    low = values * 2.0**-53 * share
    return DoubleDouble(values, torch.where(low.isfinite(), low, 0.0), values.new_zeros(()))


def uniform(low: float, high: float, count: int = 200, seed: int = 1) -> Tensor:
    """Return values drawn between two numbers."""
    drawn = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn * (high - low) + low


def special() -> Tensor:
    """Return values at which float64 arithmetic is special: subnormal, huge, zeros, infinities, NaN."""
    found = [
        0.0,
        -0.0,
        5e-324,
        -5e-324,
        2.2e-308,
        1e-300,
        2.0**-969,
        2.0**-500,
        1e-20,
        1.0,
        1 + 2.0**-52,
        -1.0,
        0.5,
        3.0,
    ]
    found += [1e10, -1e10, 2.0**400, 2.0**511, 2.0**996, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan]
    return torch.tensor(found, dtype=torch.float64)


def pairs(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return every pair of values."""
    n = len(values)
    return values.repeat_interleave(n), values.repeat(n)


def off(number: DoubleDouble, share: float) -> DoubleDouble:
    """Return the number with a radius of a share of its size, as an operand that is not exactly known."""
    return DoubleDouble(number.hi, number.lo, number.hi.abs() * share)


def moved(number: DoubleDouble, seed: int = 5) -> list[flint.arb]:
    """Return exact values somewhere within the radius."""
    place = torch.rand(number.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    shares = zip(exact(number), place.reshape(-1).tolist(), flat(number.rad, number), strict=True)
    return [value + flint.arb(share) * flint.arb(rad) for value, share, rad in shares]


def each(function: Callable[..., flint.arb], *operands: list[flint.arb]) -> list[flint.arb]:
    """Return the function of every element."""
    return [function(*values) for values in zip(*operands, strict=True)]
