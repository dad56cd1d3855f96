"""Functions from tables of Taylor polynomials, whose coefficients FLINT computes when a table is first needed.

    f(c + h) = sum over k <= n of f_k h^k + R,   f_k = f^(k)(c) / k!,   |R| <= |h| H^n max |f_(n+1)|

for the nearest centre c, a multiple of `step`, and |h| <= H = step / 2 (taken a little larger, for the radius of h).
The maximum is that of FLINT's enclosure over the ball around c.

Powers below m are summed up by double-double operations with their own radii. The rest, sum over k >= m of
f_k h^(k - m), is plain float64: with S = sum |f_k| H^(k - m), Horner's rule errs by 2 (n - m) u S (Higham, Accuracy and
Stability, section 5.1: gamma_2(n - m), to first order), the roundings of the f_k by u S and the low part of h by
(n - m) u S. m is such that this weighs less than 2^-107 of h.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TypeVar

import flint
import torch

from kernels_core.doubles.arithmetic import add, multiply, subtract
from kernels_core.doubles.number import DoubleDouble, U, exactly, halves, unknown

Tensor = torch.Tensor
Computed = TypeVar("Computed")
Series = Callable[[flint.arb_series], flint.arb_series]

PRECISION = 400  # bits of FLINT's coefficients
_LARGEST_DEGREE = 40
_WANTED = 2.0**-112  # of |R / h|
_LOCK = threading.Lock()  # FLINT's precision is the process'; tiles are evaluated by threads


@dataclasses.dataclass(frozen=True)
class Table:
    """Taylor polynomials of a function around multiples of `step`.

    Attributes:
        step: distance of the centres, a power of two.
        first: number of the first centre.
        hi, lo: coefficients, of shape (n + 1, centres).
        pairs: m of the module.
        remainder: bound of |R / h|.
        tail: bound of the error of the float64 part.
        slope: bound of the float64 part's derivative by h.
    """

    step: float
    first: int
    hi: Tensor
    lo: Tensor
    pairs: int
    remainder: float
    tail: float
    slope: float

    def __call__(self, x: DoubleDouble, offset: Tensor | None = None) -> DoubleDouble:
        """Return f(x) for x within the table; `offset` is added to the number of the centre."""
        place = (x.hi / self.step).round_()
        h = subtract(x, exactly(place * self.step))
        index = place.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).to(torch.int64) - self.first
        index = (index if offset is None else index + offset).clamp_(0, self.hi.shape[1] - 1)
        found = self._tail(h, index)
        for k in reversed(range(self.pairs)):
            hi = _taken(self.hi, k, index)
            found = add(multiply(found, h), DoubleDouble(hi, _taken(self.lo, k, index), hi.abs() * 2.0**-105))
        found = DoubleDouble(found.hi, found.lo, found.rad + h.hi.abs() * self.remainder)
        return unknown(found, ~((h.hi.abs() <= 0.5 * self.step) & (h.rad <= self.step * 2.0**-20)))

    def _tail(self, h: DoubleDouble, index: Tensor) -> DoubleDouble:
        value = _taken(self.hi, -1, index)
        for k in reversed(range(self.pairs, self.hi.shape[0] - 1)):
            value = value * h.hi + _taken(self.hi, k, index)
        return DoubleDouble(value, value.new_zeros(()), h.rad * self.slope + self.tail)


def at_precision(compute: Callable[[], Computed]) -> Computed:
    """Return compute() at FLINT's precision for tables and constants, one thread at a time."""
    with _LOCK:
        before = flint.ctx.prec, flint.ctx.cap
        flint.ctx.prec, flint.ctx.cap = PRECISION, _LARGEST_DEGREE + 2
        try:
            return compute()
        finally:
            flint.ctx.prec, flint.ctx.cap = before


def tabulate(functions: list[Series], step: float, first: int, last: int, *, monotone: bool = False) -> Table:
    """Return the table of functions around first step, ..., last step, one function after the other.

    `monotone` says that every |f^(k)| falls along x, so that its maximum over an interval is at the left end.
    """
    return at_precision(lambda: _tabulated(functions, step, first, last, monotone))


def _tabulated(functions: list[Series], step: float, first: int, last: int, monotone: bool) -> Table:
    places = [(f, place * step) for f in functions for place in range(first, last + 1)]
    room = step * (0.5 + 2.0**-10)
    largest = [0.0] * (_LARGEST_DEGREE + 1)
    for f, centre in places:
        for k, value in enumerate(_coefficients(f, flint.arb(centre - room) if monotone else flint.arb(centre, room))):
            largest[k] = max(largest[k], float(value.abs_upper()))
    degree = next(n for n in range(_LARGEST_DEGREE) if largest[n + 1] * room**n < _WANTED)
    pairs = next(m for m in range(degree + 1) if _tail_error(largest, m, degree, room) * room ** (m - 1) < 2.0**-107)
    parts = [[halves(value) for value in _coefficients(f, flint.arb(centre))[: degree + 1]] for f, centre in places]
    hi, lo = (torch.tensor([[p[k] for p in row] for row in parts], dtype=torch.float64).T.contiguous() for k in (0, 1))
    slope = sum((k - pairs) * largest[k] * room ** max(k - pairs - 1, 0) for k in range(pairs, degree + 1))
    return Table(step, first, hi, lo, pairs, largest[degree + 1] * room**degree * (1 + 2.0**-40),
                 _tail_error(largest, pairs, degree, room), slope * (1 + 2.0**-40))  # fmt: skip


def _tail_error(largest: list[float], m: int, degree: int, room: float) -> float:
    """Return the error of the float64 part, second-order terms and the roundings here included."""
    total = sum(largest[k] * room ** (k - m) for k in range(m, degree + 1))
    return (3 * (degree - m) + 2) * U * total * (1 + 2.0**-40)


def _coefficients(function: Series, centre: flint.arb) -> list[flint.arb]:
    size = _LARGEST_DEGREE + 1
    found = list(function(flint.arb_series([centre, 1], prec=size)).coeffs())
    return found + [flint.arb(0)] * (size - len(found))


def _taken(coefficients: Tensor, k: int, index: Tensor) -> Tensor:
    row = coefficients[k].to(index.device)
    return row.index_select(0, index.reshape(-1)).reshape(index.shape)
