"""Arithmetic of double-double numbers with rigorous radii.

u = 2^-53, and |lo| <= u |hi| throughout. What is not error-free is a few float64 operations on the low parts, each with
an error of at most u times its result; these errors are summed up here, nothing is taken from the literature.
"""

from __future__ import annotations

import torch

from kernels_core.doubles.error_free import fast_two_sum, two_product, two_sum
from kernels_core.doubles.number import ETA, INFLATE, TINY, DoubleDouble, U, number, select

Tensor = torch.Tensor


def add(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a + b: the roundings of t = lo + lo' and of w = e + t are the only errors, u |t| + u |w|."""
    total, error = two_sum(a.hi, b.hi)
    low = a.lo + b.lo
    rest = error + low
    rad = rest.abs().add_(low.abs()).mul_(U * INFLATE)
    rad = rad.add_((a.rad + b.rad) * INFLATE)
    return DoubleDouble(*two_sum(total, rest), rad)


def negate(a: DoubleDouble) -> DoubleDouble:
    """-a."""
    return DoubleDouble(-a.hi, -a.lo, a.rad)


def subtract(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a - b."""
    return add(a, negate(b))


def scale(a: DoubleDouble, power: float | Tensor) -> DoubleDouble:
    """Return a times a power of two: exact but for underflow, which takes at most eta from each part."""
    hi = a.hi * power
    rad = (a.rad * power).add(hi - hi)  # NaN where it overflows
    if _some_tiny(hi.abs()):
        rad = _with_underflow(rad, hi.abs(), 0.0, a.abs_upper() != 0)
    return DoubleDouble(hi, a.lo * power, rad)


def multiply(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a b = p + e + hi lo' + lo hi' + lo lo', p + e = hi hi'.

    Both products with a low part are at most (1 + 2u) u |p|, rounded with u^2 |p| each; their sum errs by 2 u^2 |p|, w
    = e + (their sum) by 3 u^2 |p|; lo lo' is left out, u^2 |p|. Together 8 u^2 |p| to first order in u; 9 are taken.
    """
    product, error = two_product(a.hi, b.hi)
    rest = error.add_(a.hi * b.lo + a.lo * b.hi)
    size_a, size_b = a.hi.abs(), b.hi.abs()
    size = product.abs()
    moved = size_a * b.rad + a.rad * (size_b + b.rad)
    rad = (size * (9 * U * U)).add_(moved).mul_(INFLATE)
    if _some_tiny(size):
        rad = _with_underflow(rad, size, 2.0**-20, (size_a + a.rad != 0) & (size_b + b.rad != 0))
    return DoubleDouble(*fast_two_sum(product, rest), rad)


def _some_tiny(size: Tensor) -> bool:
    return bool(size.numel()) and not float(size.amin()) >= TINY  # also beside a NaN


def _with_underflow(rad: Tensor, size: Tensor, share: float, nonzero: Tensor) -> Tensor:
    """Add the error of results below TINY that are not exactly zero.

    Products of halves are rounded to multiples of eta there. With |a_high b_high - p| <= 2^-25 |p| and three smaller
    products, the computed error of p is at most 2^-22 |p| + 4 eta whatever it is, the true one u |p| + eta. The radius'
    own products lose no more than eta each.
    """
    return rad + torch.where((size < TINY) & nonzero, size * share + 8 * ETA, 0.0)


def square(a: DoubleDouble) -> DoubleDouble:
    """a^2."""
    return multiply(a, a)


def divide(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a / b = q + (a - q b) / b with q = RN(hi / hi').

    hi - q hi' is a float64 number, found without error. r = that + (lo - q lo'): the product errs by u^2 |a|, the
    difference by 2 u^2 |a|, the sum (at most 4 u |a|) by 4 u^2 |a|. r / hi' in place of r / b: 4 u^2 |q|, and its
    rounding 4 u^2 |q|. Together 15 u^2 |q| to first order; 16 are taken.

    Operands: (a + s) / (b + t) - a / b = (s - t a / b) / (b + t).
    """
    quotient = a.hi / b.hi
    product, error = two_product(quotient, b.hi)
    rest = (a.hi - product).sub_(error).add_(a.lo - quotient * b.lo)
    size = quotient.abs()
    room = b.hi.abs() * (1 - 2.0**-40) - b.rad
    moved = torch.where(room > 0, (a.rad + size * b.rad) / room, torch.inf)
    rad = (size * (16 * U * U)).add_(moved * (1 + 2.0**-40)).mul_(INFLATE)
    if _some_tiny(size) or _some_tiny(a.hi.abs()):
        small = ((size < TINY) | (a.hi.abs() < TINY)) & (a.hi != 0)
        rad = torch.where(small, torch.inf, torch.where((a.hi == 0) & (a.rad > 0), rad + 8 * ETA, rad))
    return DoubleDouble(*fast_two_sum(quotient, rest / b.hi), rad)


def reciprocal(a: DoubleDouble) -> DoubleDouble:
    """1 / a."""
    return divide(number(1.0), a)


def sqrt(a: DoubleDouble) -> DoubleDouble:
    """Return the root: s + r / (2 s) - r^2 / (8 s^3) + ..., s = RN(sqrt hi), r = a - s^2.

    hi - s^2 is a float64 number, |r| <= 4 u a. The term left out is at most 2 u^2 s; the sum r errs by 4 u^2 a, hence
    2 u^2 s, and the quotient by 2 u^2 s. Together 6 u^2 s to first order; 8 are taken.
    Operand: |sqrt(a + t) - sqrt(a)| = |t| / (sqrt(a + t) + sqrt(a)) <= |t| / sqrt(a).
    """
    root = a.hi.sqrt()
    product, error = two_product(root, root)
    rest = (a.hi - product).sub_(error).add_(a.lo)
    known = (a.hi >= TINY) & (a.rad < a.hi * 0.5)
    rad = (root * (8 * U * U)).add_(a.rad / root * (1 + 2.0**-40)).mul_(INFLATE)
    found = DoubleDouble(*fast_two_sum(root, rest / (2 * root)), torch.where(known, rad, torch.inf))
    zero = (a.hi == 0) & (a.rad == 0)
    return select(zero, number(0.0), found) if bool(zero.any()) else found


def rsqrt(a: DoubleDouble) -> DoubleDouble:
    """1 / sqrt(a)."""
    return reciprocal(sqrt(a))


def integer_power(a: DoubleDouble, n: int) -> DoubleDouble:
    """a^n for n >= 1, by repeated squaring."""
    found: DoubleDouble | None = None
    while n:
        if n & 1:
            found = a if found is None else multiply(found, a)
        n >>= 1
        if n:
            a = square(a)
    return number(1.0) if found is None else found
