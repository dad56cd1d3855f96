"""Rounding and subnormals: what every float64 operation of the filter rests on, asked before anything is evaluated.

The mode of the processor belongs to a thread. PyTorch sets it with `torch.set_flush_denormal` for the calling thread
only, threads that are started later take it over, so both the main thread and PyTorch's own are asked.

Source: IEEE 754-2019, clauses 4.3.1 (roundTiesToEven) and 3.3 (subnormals).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import torch

from kernels_core.errors import AssumptionError

# a + b and what it rounds to: ties to even, both ways and for both signs, and nearest otherwise. Any other of the four
# directed modes, and ties away from zero, give another value for one of them.
_SUMS = (
    (1.0, 2.0**-53, 1.0),
    (1 + 2.0**-52, 2.0**-53, 1 + 2.0**-51),
    (-1.0, -(2.0**-53), -1.0),
    (-1 - 2.0**-52, -(2.0**-53), -1 - 2.0**-51),
    (1.0, 3 * 2.0**-54, 1 + 2.0**-52),
    (-1.0, -3 * 2.0**-54, -1 - 2.0**-52),
    (1.0, 2.0**-54, 1.0),
    (-1.0, -(2.0**-54), -1.0),
)
# a b: subnormal results are kept, rounded to even among subnormals, and subnormal operands are read. Whole numbers are
# bit patterns: where subnormals are flushed, 2.0**-1074 may be 0, and comparing it with 0 may call them equal.
_ETA, _HALF_NORMAL, _NEGATIVE = 1, 1 << 51, -(1 << 63)  # 2^-1074, 2^-1023, the sign
_PRODUCTS = (
    (2.0**-1022, 0.5, _HALF_NORMAL),
    (-(2.0**-1022), 2.0**-52, _NEGATIVE + _ETA),
    (_ETA, 2.0**60, 2.0**-1014),
    (3 * _ETA, 0.5, 2 * _ETA),
    (_ETA, 0.5, 0.0),
)
# float64 to float32, which the rounding of exact values to float32 rests on: one rounding, to even, subnormals kept.
_CASTS = (
    (1 + 2.0**-24, 1.0),
    (1 + 3 * 2.0**-24, 1 + 2.0**-22),
    (1 + 2.0**-24 + 2.0**-52, 1 + 2.0**-23),
    (3 * 2.0**-150, 2.0**-148),
    (2.0**-149, 2.0**-149),
    (2.0**128 - 2.0**103, math.inf),
)


def _bits(x: float) -> int:
    return x if isinstance(x, int) else int(struct.unpack("<q", struct.pack("<d", x))[0])


def _column(rows: Sequence[Sequence[float]], place: int) -> torch.Tensor:
    return torch.tensor([_bits(row[place]) for row in rows]).view(torch.float64)


OPERANDS = [_column(_SUMS, 0), _column(_SUMS, 1), _column(_PRODUCTS, 0), _column(_PRODUCTS, 1), _column(_CASTS, 0)]
WANTED = [[_bits(row[-1]) for row in rows] for rows in (_SUMS, _PRODUCTS, _CASTS)]
CLAIMS = (
    "float64 rounds to nearest, ties to even",
    "float64 keeps subnormal numbers",
    "float64 becomes float32 in one rounding",
)
BROKEN = (
    "float64 does not round to nearest",
    "float64 flushes subnormal numbers to zero",
    "float64 does not round to float32 once",
)
REMEDIES = (
    "something has changed the rounding mode of this process",
    "something has called torch.set_flush_denormal(True), or was built with -ffast-math and sets it when it is loaded",
    "something has changed the rounding mode of this process, or flushes subnormals",
)


def evaluated(operands: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the sums, products and casts of the operands, as bit patterns."""
    a, b, c, d, e = operands
    return tuple(result.view(torch.int64) for result in (a + b, c * d, e.to(torch.float32).to(torch.float64)))


def broken() -> tuple[int, ...]:
    """Return the claims that do not hold in this thread, by number; about 30 microseconds."""
    with torch.no_grad():
        found = [result.tolist() for result in evaluated(OPERANDS)]
    return tuple(place for place, (have, want) in enumerate(zip(found, WANTED, strict=True)) if have != want)


def require() -> None:
    """Refuse to evaluate anything where this thread's arithmetic is not what the filter rests on.

    Raises:
        AssumptionError: with what is broken, and what usually breaks it.
    """
    if places := broken():
        raise AssumptionError(
            f"nothing can be decided: {BROKEN[places[0]]} in this process\n"
            f"{REMEDIES[places[0]]}; `exactref doctor` shows more"
        )
