"""Functions from tables of Taylor polynomials, whose coefficients FLINT computes when a table is first needed.

    f(c + h) = sum over k <= n of f_k h^k + R,   f_k = f^(k)(c) / k!,   |R| <= |h| H^n max |f_(n+1)|

for the nearest centre c, a multiple of `step`, and |h| <= H = step / 2 (taken a little larger, for the radius of h).
The maximum is that of FLINT's enclosure over the ball around c.

Powers below m are summed up by double-double operations, P_k = f_k + h P_(k+1). The rest, P_m = sum over k >= m of
f_k h^(k - m), is plain float64: with S = sum |f_k| H^(k - m), Horner's rule errs by 2 (n - m) u S (Higham, Accuracy and
Stability, section 5.1: gamma_2(n - m), to first order), the roundings of the f_k by u S and the low part of h by
(n - m) u S. m is such that this weighs less than 2^-107 of h, or less than 2^-100 of every |f_0|.

With q = |h| A_(k+1) and

    A_k = sum over j >= k of |f_j| H^(j - k) >= |P_k|,

a step takes P_(k+1) = v + l, |l| <= 5 u A_(k+1), to the high part s = RN(p + f_k), p = RN(v h), and the low part

    e + v h_lo + l h + lo + e',     e, e' the errors of p and s, found exactly, and lo the low part of f_k,

added up from the left. The terms are at most u q, u q, 5 u q, u |f_k| and u (q + |f_k|), the sums 2, 7, 7, 8 u q and
0, 0, 1, 2 u |f_k|: the roundings of two products and four sums are 30 u^2 q + 3 u^2 |f_k|; l h_lo is left out, 5 u^2 q;
f_k is off by 2 u^2 |f_k|. Together 35 u^2 q + 5 u^2 |f_k| to first order; 36 are taken. The low part is at most
u (8 q + 2 |f_k|): where 3 q <= 2 |f_k| this is at most 5 u A_k, as was to be shown, and |s| is above it. Where all
centres have 3 H A_(k+1) <= 2 |f_k|, s is a fast sum therefore and nothing is normalised before k = 0. There f_0 may
also be zero if 3 H A_2 <= 2 |f_1|, hence 3 |p| >= |h f_1|. For other k both parts are normalised, |l| <= u |v|. So with
h off by r

    E_k <= |h| E_(k+1) + r A_(k+1) + 36 u^2 |h| A_(k+1) + 5 u^2 |f_k|
    E_0 <= 5 u^2 |f_0| + |h| (u^2 (36 A_1 + sum over 1 <= k < m of H^(k-1) (36 H A_(k+1) + 5 |f_k|)) + H^(m-1) E)
           + r (sum over k < m of H^k A_(k+1) + H^m s)

where the float64 part P_m errs by E + r s. Both parentheses are kept for each centre, 2^-20 larger. Where |f(c + h)| is
at least |f_0| - H A_1 > 0 around every centre, or |h| (|f_1| - H A_2) where f_0 = 0, the first two terms are a share of
|f| that one number bounds for the whole table.

h = x - c is exact: |h| is at most half a step, and |x| half of |c|, so that hi - c is a float64 number (Sterbenz), and
a multiple of ulp(hi) or of c's.

Underflow: a product below TINY errs by 2^-20 of it and 8 eta (arithmetic.py). Where |h| >= 2^-800 that is nothing
beside 2^-20 of 5 u^2 |f_0|, or where f_0 = 0 (and A_1 > 2^-10) of 36 u^2 |h| A_1. For smaller h it is added for h P_1,
unless every |f_0| >= 2^-700; for later products, which are multiplied by h again, the same holds.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TypeVar

import flint
import torch

from kernels_core.doubles.error_free import fast_two_sum, product_of_halves, split, two_sum
from kernels_core.doubles.number import ETA, INFLATE, DoubleDouble, U, halves, is_zero, unknown

Tensor = torch.Tensor
Computed = TypeVar("Computed")
Series = Callable[[flint.arb_series], flint.arb_series]

PRECISION = 400  # bits of FLINT's coefficients
_LARGEST_DEGREE = 40
_WANTED = 2.0**-112  # of |R / h|
_REACH, _ROOM = 0.5 + 2.0**-11, 0.5 + 2.0**-10  # of a step: |h|, and H, which |h| and its radius stay below
_TINY_STEP = 2.0**-800  # |h| whose products may be below TINY
_LOCK = threading.Lock()  # FLINT's precision is the process'; tiles are evaluated by threads


@dataclasses.dataclass(frozen=True)
class Table:
    """Taylor polynomials of a function around multiples of `step`.

    Attributes:
        step: distance of the centres, a power of two.
        first: number of the first centre.
        hi, lo: coefficients, of shape (n + 1, centres).
        ordered: for each k < m, whether s is a fast sum at every centre.
        base: bound of the error at h = 0, of shape (centres,).
        weight: bound of the error for each unit of |h|, of shape (centres,): the first parenthesis and |R / h|.
        slope: bound of the error for each unit of the radius of h, of shape (centres,).
        share: bound of base + |h| weight as a share of |f|, None where f may vanish between centres.
        floor: the smallest |f_0|.
    """

    step: float
    first: int
    hi: Tensor
    lo: Tensor
    ordered: tuple[bool, ...]
    base: Tensor
    weight: Tensor
    slope: Tensor
    share: float | None
    floor: float

    def __call__(self, x: DoubleDouble, offset: Tensor | None = None) -> DoubleDouble:
        """Return f(x) for x within the table; `offset` is added to the number of the centre."""
        place = (x.hi / self.step).round_()
        h, h_low = x.hi - place * self.step, x.lo
        if not is_zero(h_low):
            h, h_low = fast_two_sum(h, h_low)
        index = place.sub_(self.first).nan_to_num_(nan=0.0).clamp_(0, self.hi.shape[1] - 1).to(torch.int64)
        index = index if offset is None else (index + offset).clamp_(0, self.hi.shape[1] - 1)
        value, low = self._sum(h, h_low, index)
        size = h.abs()
        found = DoubleDouble(value, low, self._rad(value, size, x.rad, index))
        near = bool(size.numel()) and float(size.amax()) <= _REACH * self.step
        if near and (is_zero(x.rad) or float(x.rad.amax()) <= self.step * 2.0**-20):
            return found
        return unknown(found, ~((size <= _REACH * self.step) & (x.rad <= self.step * 2.0**-20)))

    def _rad(self, value: Tensor, size: Tensor, moved: Tensor, index: Tensor) -> Tensor:
        if self.share is None:
            rad = self._at(self.base, index).addcmul_(size, self._at(self.weight, index)).mul_(INFLATE)
        else:
            rad = value.abs().mul_(self.share)
        if not is_zero(moved):
            rad = rad.addcmul_(self._at(self.slope, index), moved, value=INFLATE)
        if self.floor >= 2.0**-700 or not size.numel() or float(size.amin()) >= _TINY_STEP:
            return rad
        tiny = (size < _TINY_STEP) & ((size != 0) | (moved != 0))
        return rad + torch.where(tiny, size * self._at(self.slope, index) * 2.0**-20 + 8 * ETA, 0.0)

    def _sum(self, h: Tensor, h_low: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        pairs = len(self.ordered)
        value = self._at(self.hi[-1], index)
        for k in reversed(range(pairs, self.hi.shape[0] - 1)):
            value = self._at(self.hi[k], index).addcmul_(value, h)
        low, halves_of_h = value.new_zeros(()), split(h)
        for k in reversed(range(pairs)):
            add_up = fast_two_sum if self.ordered[k] else two_sum
            product, rest = product_of_halves(value, split(value), h, halves_of_h)
            if not is_zero(h_low):
                rest = rest.addcmul_(value, h_low)
            if k < pairs - 1:
                rest = rest.addcmul_(low, h)
            total, lost = add_up(self._at(self.hi[k], index), product)
            value, low = total, rest.add_(self._at(self.lo[k], index)).add_(lost)
            if not self.ordered[k] or not k:
                value, low = add_up(value, low)
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


def tabulate(functions: list[Series], step: float, first: int, last: int, *, steepest: int | None = None) -> Table:
    """Return the table of functions around first step, ..., last step, one function after the other.

    `steepest` is 1 where every |f^(k)| grows along x and -1 where it falls: its maximum is at that end.
    """
    return at_precision(lambda: _tabulated(functions, step, first, last, steepest))


def _tabulated(functions: list[Series], step: float, first: int, last: int, steepest: int | None) -> Table:
    places = [(f, place * step) for f in functions for place in range(first, last + 1)]
    room = step * _ROOM
    balls = [(f, flint.arb(centre, room)) for f, centre in places]
    if steepest is not None:
        end = flint.arb(last * step + room if steepest > 0 else first * step - room)
        balls = [(f, end) for f in functions]
    enclosed = [_coefficients(f, ball, _LARGEST_DEGREE + 1) for f, ball in balls]
    largest = [max(float(row[k].abs_upper()) for row in enclosed) for k in range(_LARGEST_DEGREE + 1)]
    floor = min(float(abs(_coefficients(f, flint.arb(centre), 1)[0]).mid()) for f, centre in places)
    remainders = [largest[n + 1] * room**n for n in range(_LARGEST_DEGREE)]
    degree = next(n for n, left in enumerate(remainders) if left < max(_WANTED, 2.0**-105 * floor / room))
    tails = [_tail_error(largest, m, degree, room) * room ** (m - 1) for m in range(1, degree + 1)]
    pairs = 1 + next(place for place, left in enumerate(tails) if left < max(2.0**-107, 2.0**-100 * floor / room))
    parts = [[halves(value) for value in _coefficients(f, flint.arb(centre), degree + 1)] for f, centre in places]
    hi, lo = (torch.tensor([[p[k] for p in row] for row in parts], dtype=torch.float64).T.contiguous() for k in (0, 1))
    tail, remainder = tails[pairs - 1], remainders[degree]
    slope = sum((k - pairs) * largest[k] * room ** max(k - pairs - 1, 0) for k in range(pairs, degree + 1))
    sizes, partial = hi.abs(), _partial(hi.abs(), room)
    base, weights, slopes = _sums(sizes, partial, pairs, room)
    weights, slopes = weights.add_(tail + remainder), slopes.add_(slope * room**pairs)
    share = _share(sizes, partial, base + room * weights, weights, remainder, room)
    base, weights, slopes = (bound.mul_(1 + 2.0**-20) for bound in (base, weights, slopes))
    return Table(step, first, hi, lo, _ordered(sizes, partial, pairs, room), base, weights, slopes, share, floor)


def _partial(sizes: Tensor, room: float) -> Tensor:
    """Return the A_k of the module for each centre."""
    partial = torch.zeros(sizes.shape[0] + 1, sizes.shape[1], dtype=torch.float64)
    for k in reversed(range(sizes.shape[0])):
        partial[k] = sizes[k] + room * partial[k + 1]
    return partial


def _ordered(sizes: Tensor, partial: Tensor, pairs: int, room: float) -> tuple[bool, ...]:
    """Return for each k whether all centres have f_k well above what is added to it."""
    good = [sizes[k] >= 1.5 * (1 + 2.0**-20) * room * partial[k + 1] for k in range(pairs)]
    good[0] |= (sizes[0] == 0) & (sizes[1] >= 1.5 * (1 + 2.0**-20) * room * partial[2])
    return tuple(bool(each.all()) for each in good)


def _sums(sizes: Tensor, partial: Tensor, pairs: int, room: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three sums of the module: at h = 0, for each unit of |h|, and for each unit of the radius of h."""
    later = [room ** (k - 1) * (36 * room * partial[k + 1] + 5 * sizes[k]) for k in range(1, pairs)]
    weights = torch.stack([36 * partial[1], *later]).sum(0) * (U * U)
    return sizes[0] * (5 * U * U), weights, torch.stack([room**k * partial[k + 1] for k in range(pairs)]).sum(0)


def _share(
    sizes: Tensor, partial: Tensor, largest: Tensor, weight: Tensor, remainder: float, room: float
) -> float | None:
    """Return the largest error as a share of |f|, 2^-18 larger for roundings; None where |f| has no lower bound."""
    zero = sizes[0] == 0
    least = torch.where(zero, sizes[1] - room * partial[2], sizes[0] - room * partial[1])
    least = least - remainder * torch.where(zero, 1.0, room)
    if not bool((least > 0).all()):
        return None
    return float((torch.where(zero, weight, largest) / least).amax()) * (1 + 2.0**-18)


def _tail_error(largest: list[float], m: int, degree: int, room: float) -> float:
    """Return the error of the float64 part, second-order terms and the roundings here included."""
    total = sum(largest[k] * room ** (k - m) for k in range(m, degree + 1))
    return (3 * (degree - m) + 2) * U * total * (1 + 2.0**-40)


def _coefficients(function: Series, centre: flint.arb, size: int) -> list[flint.arb]:
    found = list(function(flint.arb_series([centre, 1], prec=size)).coeffs())[:size]
    return found + [flint.arb(0)] * (size - len(found))
