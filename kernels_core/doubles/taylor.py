"""Functions from tables of Taylor polynomials, whose coefficients FLINT computes when a table is first needed.

    f(c + h) = sum over k <= n of f_k h^k + R,   f_k = f^(k)(c) / k!,   |R| <= |h| H^n max |f_(n+1)|

for the nearest centre c, a multiple of `step`, and |h| <= H = step / 2 (taken a little larger, for the radius of h).
The maximum is that of FLINT's enclosure over the ball around c.

Powers below m are summed up by double-double operations, P_k = f_k + h P_(k+1). The rest, P_m = sum over k >= m of
f_k h^(k - m), is plain float64: with S = sum |f_k| H^(k - m), Horner's rule errs by 2 (n - m) u S (Higham, Accuracy and
Stability, section 5.1: gamma_2(n - m), to first order), the roundings of the f_k by u S and the low part of h by
(n - m) u S. m is such that this weighs less than 2^-107 of h.

A product p h (arithmetic.py: `multiply`) errs by 9 u^2 |p h|; its rest, at most 3 u |p h|, is added to the low part of
f_k and to the error of the sum of the high parts without being normalised before: t = rest + lo and w = e + t err by
2 u |t| + u^2 |sum| <= u^2 (7 |p h| + 3 |f_k|); f_k is off by 2 u^2 |f_k|. So with h off by r and

    A_k = sum over j >= k of |f_j| H^(j - k) >= |P_k|

    E_k <= |h| E_(k+1) + r A_(k+1) + 16 u^2 |h| A_(k+1) + 5 u^2 |f_k|
    E_0 <= 5 u^2 |f_0| + |h| (u^2 (16 A_1 + sum over 1 <= k < m of H^(k-1) (16 H A_(k+1) + 5 |f_k|)) + H^(m-1) E)
           + r (sum over k < m of H^k A_(k+1) + H^m s)

where the float64 part P_m errs by E + r s. Both parentheses are kept for each centre, 2^-20 larger.

Underflow: a product below TINY errs by 2^-20 of it and 8 eta (arithmetic.py). Where |h| >= 2^-800 that is nothing
beside 2^-20 of 5 u^2 |f_0|, or where f_0 = 0 (and A_1 > 2^-10) of 16 u^2 |h| A_1. For smaller h it is added for h P_1;
for later products, which are multiplied by h again, the same holds.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TypeVar

import flint
import torch

from kernels_core.doubles.arithmetic import subtract
from kernels_core.doubles.error_free import product_of_halves, split, two_sum
from kernels_core.doubles.number import ETA, INFLATE, DoubleDouble, U, exactly, halves, unknown

Tensor = torch.Tensor
Computed = TypeVar("Computed")
Series = Callable[[flint.arb_series], flint.arb_series]

PRECISION = 400  # bits of FLINT's coefficients
_LARGEST_DEGREE = 40
_WANTED = 2.0**-112  # of |R / h|
_TINY_STEP = 2.0**-800  # |h| whose products may be below TINY
_LOCK = threading.Lock()  # FLINT's precision is the process'; tiles are evaluated by threads


@dataclasses.dataclass(frozen=True)
class Table:
    """Taylor polynomials of a function around multiples of `step`.

    Attributes:
        step: distance of the centres, a power of two.
        first: number of the first centre.
        hi, lo: coefficients, of shape (n + 1, centres).
        pairs: m of the module, at least 1.
        base: bound of the error at h = 0, of shape (centres,).
        weight: bound of the error for each unit of |h|, of shape (centres,): the first parenthesis and |R / h|.
        slope: bound of the error for each unit of the radius of h, of shape (centres,).
    """

    step: float
    first: int
    hi: Tensor
    lo: Tensor
    pairs: int
    base: Tensor
    weight: Tensor
    slope: Tensor

    def __call__(self, x: DoubleDouble, offset: Tensor | None = None) -> DoubleDouble:
        """Return f(x) for x within the table; `offset` is added to the number of the centre."""
        place = (x.hi / self.step).round_()
        h = subtract(x, exactly(place * self.step))
        index = place.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).to(torch.int64) - self.first
        index = (index if offset is None else index + offset).clamp_(0, self.hi.shape[1] - 1)
        size = h.hi.abs()
        rad = self._at(self.base, index).addcmul_(size, self._at(self.weight, index))
        rad = rad.add_(self._at(self.slope, index) * h.rad).mul_(INFLATE)
        tiny = (size < _TINY_STEP) & ((size != 0) | (h.rad != 0))
        if bool(tiny.any()):
            rad = rad + torch.where(tiny, size * self._at(self.slope, index) * 2.0**-20 + 8 * ETA, 0.0)
        found = DoubleDouble(*self._sum(h, index), rad)
        return unknown(found, ~((size <= 0.5 * self.step) & (h.rad <= self.step * 2.0**-20)))

    def _sum(self, h: DoubleDouble, index: Tensor) -> tuple[Tensor, Tensor]:
        value = self._at(self.hi[-1], index)
        for k in reversed(range(self.pairs, self.hi.shape[0] - 1)):
            value = value * h.hi + self._at(self.hi[k], index)
        low, halves_of_h = value.new_zeros(()), split(h.hi)
        for k in reversed(range(self.pairs)):
            product, error = product_of_halves(value, split(value), h.hi, halves_of_h)
            total, lost = two_sum(product, self._at(self.hi[k], index))
            rest = error.addcmul_(value, h.lo).addcmul_(low, h.hi).add_(self._at(self.lo[k], index)).add_(lost)
            value, low = two_sum(total, rest)
        return value, low

    @staticmethod
    def _at(row: Tensor, index: Tensor) -> Tensor:
        return row.to(index.device).index_select(0, index.reshape(-1)).reshape(index.shape)


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
    pairs = next(m for m in range(1, degree + 1) if _tail_error(largest, m, degree, room) * room ** (m - 1) < 2.0**-107)
    parts = [[halves(value) for value in _coefficients(f, flint.arb(centre))[: degree + 1]] for f, centre in places]
    hi, lo = (torch.tensor([[p[k] for p in row] for row in parts], dtype=torch.float64).T.contiguous() for k in (0, 1))
    tail, remainder = _tail_error(largest, pairs, degree, room), largest[degree + 1] * room**degree
    slope = sum((k - pairs) * largest[k] * room ** max(k - pairs - 1, 0) for k in range(pairs, degree + 1))
    base, weights, slopes = _sums(hi.abs(), pairs, room)
    weights, slopes = weights.add_(tail * room ** (pairs - 1) + remainder), slopes.add_(slope * room**pairs)
    return Table(step, first, hi, lo, pairs, *(bound.mul_(1 + 2.0**-20) for bound in (base, weights, slopes)))


def _sums(sizes: Tensor, pairs: int, room: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three sums of the module: at h = 0, for each unit of |h|, and for each unit of the radius of h."""
    partial = torch.zeros(sizes.shape[0] + 1, sizes.shape[1], dtype=torch.float64)
    for k in reversed(range(sizes.shape[0])):
        partial[k] = sizes[k] + room * partial[k + 1]
    later = [room ** (k - 1) * (16 * room * partial[k + 1] + 5 * sizes[k]) for k in range(1, pairs)]
    weights = torch.stack([16 * partial[1], *later]).sum(0) * (U * U)
    return sizes[0] * (5 * U * U), weights, torch.stack([room**k * partial[k + 1] for k in range(pairs)]).sum(0)


def _tail_error(largest: list[float], m: int, degree: int, room: float) -> float:
    """Return the error of the float64 part, second-order terms and the roundings here included."""
    total = sum(largest[k] * room ** (k - m) for k in range(m, degree + 1))
    return (3 * (degree - m) + 2) * U * total * (1 + 2.0**-40)


def _coefficients(function: Series, centre: flint.arb) -> list[flint.arb]:
    size = _LARGEST_DEGREE + 1
    found = list(function(flint.arb_series([centre, 1], prec=size)).coeffs())
    return found + [flint.arb(0)] * (size - len(found))
