"""Legal evaluations of what profiles grant, written apart from the bounds: what the tests hold against them."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def exponents(x: Array, smallest: int) -> Array:
    """Exponents of x, at least `smallest`; very low for zeros, which take no part in an alignment."""
    return np.where(x == 0, -4000, np.maximum(np.frexp(x)[1] - 1, smallest))


def cut(x: Array, exponent: Array) -> Array:
    """Truncate x to a multiple of 2^exponent."""
    return np.ldexp(np.trunc(np.ldexp(x, -exponent)), exponent)


def block(a: Array, b: Array, c: Array, *, fraction: int, output: int, smallest: int) -> Array:
    """One tensor-core instruction on rows: c + sum a b, aligned to the largest exponent and truncated."""
    products = a * b
    found = np.concatenate([exponents(a, smallest) + exponents(b, smallest), exponents(c, -126)[:, None]], axis=1)
    aligned = np.maximum(found.max(1), -133)[:, None] - fraction
    total = cut(products, aligned).sum(1) + cut(c[:, None], aligned)[:, 0]
    return cut(total, np.maximum(np.frexp(total)[1] - 1, -126) - output)


def chain(a: Array, b: Array, c: Array, n: int, **numbers: int) -> Array:
    """Blocks of n products, one after the other."""
    for start in range(0, a.shape[1], n):
        c = block(a[:, start : start + n], b[:, start : start + n], c, **numbers)
    return c


def chains(a: Array, b: Array, n: int, promote: int, **numbers: int) -> Array:
    """Chains of `promote` products from zero, added one after the other in float32."""
    total = np.zeros(len(a), np.float32)
    for start in range(0, a.shape[1], promote):
        part = chain(a[:, start : start + promote], b[:, start : start + promote], np.zeros(len(a)), n, **numbers)
        total = total + part.astype(np.float32)
    return total.astype(np.float64)


def sequential(terms: Array, dtype: str) -> Array:
    """The running sum of each row, every addition rounded to the dtype."""
    return np.add.accumulate(terms.astype(dtype), axis=1, dtype=dtype)[:, -1].astype(np.float64)


def pairwise(terms: Array) -> Array:
    """The float32 sum of each row by halves."""
    terms = terms.astype(np.float32)
    while terms.shape[1] > 1:
        odd = terms[:, -1:] if terms.shape[1] % 2 else terms[:, :0]
        even = terms[:, : terms.shape[1] // 2 * 2]
        terms = np.concatenate([even[:, 0::2] + even[:, 1::2], odd], axis=1)
    return terms[:, 0].astype(np.float64)


def blocked(terms: Array, n: int) -> Array:
    """The float32 sum of each row: sums of n terms one after the other, and these one after the other."""
    parts = [sequential(terms[:, start : start + n], "float32") for start in range(0, terms.shape[1], n)]
    return sequential(np.stack(parts, axis=1), "float32")


def tf32(x: Array) -> Array:
    """Float32 values cut to 10 fraction bits."""
    return (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
