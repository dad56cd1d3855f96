"""An order of additions whose sequential float32 sum comes as close as possible to a given number.

Any order of a sum is legal (rules/sums.py). While partial sums stay between 2^e and 2^(e+1) all of them are multiples
of the same unit u, so that adding t errs by RN_u(t) - t whatever the partial sum is: each term has a side to which it
errs up there. Positive terms come first and negative ones last, which carries the partial sums as high as they go, and
the k terms that err most to the wanted side are added at the top:

    positive, positive favoured, negative favoured, negative.

Their errors add up, to about n u / 8 for n terms of one sign. The sum moves with k, a bisection finds where it passes
the wanted number, and exchanging a few terms of both kinds there moves it by single units.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Array = np.ndarray
EXCHANGES = 600  # orders tried around the place where the sum passes the wanted number
_SCANNED = 24


def sequential(terms: Array) -> float:
    """Return the float32 sum of float32 terms, one after the other."""
    return float(np.add.accumulate(terms, dtype=np.float32)[-1])


def closest_order(terms: Array, wanted: float) -> Array:
    """Return an order of the terms whose sequential float32 sum is as close to `wanted` as was found.

    Args:
        terms: float32, one dimension.
        wanted: a float32 number.
    """
    best = np.arange(len(terms))
    for order in _orders(terms, wanted):
        if _gap(terms, order, wanted) < _gap(terms, best, wanted):
            best = order
        if _gap(terms, best, wanted) == 0:
            break
    return best


def _gap(terms: Array, order: Array, wanted: float) -> float:
    return abs(sequential(terms[order]) - wanted)


def _orders(terms: Array, wanted: float) -> Iterator[Array]:
    plain = _at_the_top(terms, np.arange(len(terms)), 0)
    yield plain
    unit = _unit(terms)
    for top in (unit, unit / 2):  # where the sum has just passed a power of two, most is added below it
        yield from _passing(terms, _ranked(terms, top, up=sequential(terms[plain]) < wanted), wanted)


def _passing(terms: Array, ranked: Array, wanted: float) -> Iterator[Array]:
    """Yield orders with more and more favoured terms at the top, closer and closer to where the sum passes `wanted`."""
    counts = np.unique(np.linspace(0, len(terms), _SCANNED).astype(int))
    above = [sequential(terms[_at_the_top(terms, ranked, k)]) > wanted for k in counts]
    passes = [i for i in range(1, len(above)) if above[i] != above[0]]
    if not passes:
        yield from (_at_the_top(terms, ranked, k) for k in counts)
        return
    low, high = counts[passes[0] - 1], counts[passes[0]]
    while high - low > 1:
        middle = (low + high) // 2
        order = _at_the_top(terms, ranked, middle)
        yield order
        low, high = (middle, high) if (sequential(terms[order]) > wanted) == above[0] else (low, middle)
    yield from _exchanged(terms, ranked, low)


def _exchanged(terms: Array, ranked: Array, count: int) -> Iterator[Array]:
    """Yield orders in which a few of the favoured terms are others than the first `count`."""
    random = np.random.default_rng(count)
    for attempt in range(EXCHANGES if 0 < count < len(ranked) else 0):
        some = 1 + attempt % 8
        other = ranked.copy()
        inside, outside = random.integers(0, count, some), random.integers(count, len(ranked), some)
        other[inside], other[outside] = ranked[outside], ranked[inside]
        if len(set(other.tolist())) == len(other):
            yield _at_the_top(terms, other, count)


def _unit(terms: Array) -> float:
    """Return the unit in the last place of the largest partial sum."""
    positive, negative = (float(terms[side].sum(dtype=np.float64)) for side in (terms > 0, terms < 0))
    return float(np.spacing(np.float32(max(positive, -negative))))


def _ranked(terms: Array, unit: float, *, up: bool) -> Array:
    """Return the terms in the order of how far they err to the wanted side, the most favourable first."""
    multiples = terms.astype(np.float64) / unit
    error = np.rint(multiples) - multiples
    return np.argsort(-error if up else error, kind="stable")


def _at_the_top(terms: Array, ranked: Array, count: int) -> Array:
    """Return the order that adds the first `count` of the ranked terms where the partial sums are largest."""
    favoured = np.zeros(len(terms), bool)
    favoured[ranked[:count]] = True
    first = terms > 0 if terms.sum(dtype=np.float64) >= 0 else terms < 0
    parts = (first & ~favoured, first & favoured, ~first & favoured, ~first & ~favoured)
    return np.concatenate([np.flatnonzero(part) for part in parts])
