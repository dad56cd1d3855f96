"""Error-free transforms: the rounding error of one float64 operation, as a float64 number.

    two_sum(a, b) = (s, e)        s = RN(a + b), s + e = a + b exactly
    two_product(a, b) = (p, e)    p = RN(a b),   p + e = a b exactly, where nothing over- or underflows

Sources: Knuth, The Art of Computer Programming 2, 4.2.2, theorem B; Dekker, A floating-point technique for extending
the available precision, Numer. Math. 18 (1971).

They need each operation rounded on its own. PyTorch's eager operations are; nothing here may be compiled. `addcmul` may
or may not use FMA: it is given products that are exact, where both round alike.

Overflow: a product or sum that overflows leaves an infinity or NaN as its error. Underflow: the halves' products are
exact where |a b| >= 2^-967: their last bit is at 2^-106 |a b| or above.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor

_HALF, _HIGH_BITS = 1 << 26, -(1 << 27)  # of a float64's 53 bits the lower 27 are cut off, rounded


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return RN(a + b) and its error: a - (total - back) + (b - back), back = total - a."""
    total = a + b
    back = total - a
    rest = total - back
    torch.sub(a, rest, out=rest)
    torch.sub(b, back, out=back)
    return total, rest.add_(back)


def fast_two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return RN(a + b) and its error, for |a| >= |b| or a a multiple of ulp(b), zero included: b - (total - a).

    The second case, |a| < |b|: a + b is a multiple of ulp(b) below 2 |b|, so that RN(a + b) is off by 0 or +-ulp(b).
    Then total - a is b or b +- ulp(b), no larger than 2^53 ulp(b): a float64 number, and so is the error.
    """
    total = a + b
    back = total - a
    return total, torch.sub(b, back, out=back)


def split(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return two halves of 26 bits each with a = high + low: high is a rounded to 2^27 ulp, halves away from zero.

    As integers, the bits of floating numbers of one sign are in order; a carry out of the significand moves on to the
    next exponent. So |low| <= 2^26 ulp: both halves' products with others' are exact.
    """
    bits = a.view(torch.int64) + _HALF
    high = bits.bitwise_and_(_HIGH_BITS).view(torch.float64)
    return high, a - high


def two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return RN(a b) and its error (Dekker)."""
    halves = split(a)
    return product_of_halves(a, halves, b, halves if b is a else split(b))


def product_of_halves(
    a: Tensor, a_halves: tuple[Tensor, Tensor], b: Tensor, b_halves: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the same, given the halves."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = a_halves, b_halves
    error = (a_high * b_high).sub_(product)
    return product, error.addcmul_(a_high, b_low).addcmul_(a_low, b_high).addcmul_(a_low, b_low)
