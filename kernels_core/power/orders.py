"""An order of additions whose float32 sum comes as close as possible to a given number.

Any order of a sum is legal, as is any tree of additions (rules/sums.py). While partial sums stay between 2^e and
2^(e+1) all of them are multiples of the same unit u, so that adding t errs by RN_u(t) - t whatever the partial sum is:
each term has a side to which it errs up there. Positive terms come first and negative ones last, which carries the
partial sums as high as they go, and the k terms that err most to the wanted side are added at the top:

    positive, positive favoured, negative favoured, negative.

Their errors add up, to about n u / 8 for n terms of one sign; large terms are added where the partial sums are small,
so that most terms are at the top. The sum moves with k, a bisection finds where it passes the wanted number, and
exchanging a few terms of both kinds there moves it by single units. Half of all terms err to the other side; two of
them, added to each other first, err by nearly u / 2 to the wanted one, which doubles the reach (`paired`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Array = np.ndarray
EXCHANGES = 600  # orders tried around the place where the sum passes the wanted number
_SCANNED = 24
_ROUNDS = 2
_TAILS = (512, 64, 16)


def sequential(terms: Array) -> float:
    """Return the float32 sum of float32 terms, one after the other."""
    return float(np.add.accumulate(terms, dtype=np.float32)[-1])


def closest_sum(terms: Array, wanted: float) -> float:
    """Return the float32 sum of the terms that comes as close to `wanted` as was found, of two kinds of trees.

    Args:
        terms: float32, one dimension.
        wanted: a float32 number.
    """
    plain = sequential(terms[closest_order(terms, wanted)])
    if plain == wanted:
        return plain
    merged = paired(terms, up=plain < wanted)
    return min(plain, sequential(merged[closest_order(merged, wanted)]), key=lambda found: abs(found - wanted))


def paired(terms: Array, *, up: bool) -> Array:
    """Return the terms, those that err to the wrong side added to each other until they err to the wanted one.

    With f the fraction of t / u, -t / u where the sum is to come down, t errs up by 1 - f where f > 1/2 and down by f
    where it is not: of the latter two with f + f' just above 1/2 make one that errs up by nearly u / 2. Those that are
    left are added in pairs as well and tried again. u is the unit at the place of the term, large terms coming first.
    """
    for _ in range(_ROUNDS):
        terms = terms[_by_size(terms)]
        unit = np.spacing(np.abs(np.add.accumulate(terms))).astype(np.float64)
        fraction = np.mod((1 if up else -1) * terms / unit, 1.0)
        pairs = list[tuple[int, int]]()
        for side in (terms > 0, terms < 0):
            rest = np.flatnonzero(side & (fraction <= 0.5))
            pairs += _matched(rest[np.argsort(fraction[rest])], fraction)
        both = np.array(pairs, dtype=int).reshape(-1, 2)
        alone = np.setdiff1d(np.arange(len(terms)), both)
        terms = np.concatenate([terms[alone], terms[both[:, 0]] + terms[both[:, 1]]])
    return terms


def _matched(ascending: Array, fraction: Array) -> list[tuple[int, int]]:
    """Return pairs: the largest with the smallest that makes more than 1/2 of it, then those that are left."""
    pairs, left, low, high = list[tuple[int, int]](), list[int](), 0, len(ascending) - 1
    while low < high:
        if fraction[ascending[low]] + fraction[ascending[high]] > 0.5:
            pairs.append((int(ascending[low]), int(ascending[high])))
            high -= 1
        else:
            left.append(int(ascending[low]))
        low += 1
    return pairs + list(zip(left[::2], left[1::2], strict=False))


def closest_order(terms: Array, wanted: float) -> Array:
    """Return an order of the terms whose sequential float32 sum is as close to `wanted` as was found.

    Args:
        terms: float32, one dimension.
        wanted: a float32 number.
    """
    by_size = _by_size(terms)
    best, gap = np.arange(len(terms)), _gap(terms, np.arange(len(terms)), wanted)
    for order in _orders(terms[by_size], wanted):
        if (found := _gap(terms, by_size[order], wanted)) < gap:
            best, gap = by_size[order], found
        if gap == 0:
            break
    return best if gap == 0 else _refined(terms, best, wanted)


def _refined(terms: Array, order: Array, wanted: float) -> Array:
    """Return the order with its last terms exchanged, where partial sums that fall have the smallest units."""
    best, gap, random = order, _gap(terms, order, wanted), np.random.default_rng(len(terms))
    for length in _TAILS:
        for _ in range(EXCHANGES if gap else 0):
            other = np.concatenate([best[:-length], random.permutation(best[-length:])])
            if (found := _gap(terms, other, wanted)) < gap:
                best, gap = other, found
    return best


def _by_size(terms: Array) -> Array:
    """Return the order in which partial sums rise as fast as they can, then fall as slowly."""
    return np.argsort(-terms if terms.sum(dtype=np.float64) >= 0 else terms, kind="stable")


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
