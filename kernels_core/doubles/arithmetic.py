"""Arithmetic of double-double numbers with rigorous radii.

u = 2^-53, and |lo| <= u |hi| throughout. What is not error-free is a few float64 operations on the low parts, each with
an error of at most u times its result; these errors are summed up here, nothing is taken from the literature.
"""

from __future__ import annotations

import math

import torch

from kernels_core.doubles.error_free import fast_two_sum, two_product, two_sum
from kernels_core.doubles.number import ETA, INFLATE, TINY, DoubleDouble, U, is_zero, number, select
from kernels_core.enclosure import all_finite

Tensor = torch.Tensor


def add(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a + b: the roundings of t = lo + lo' and of w = e + t are the only errors, u |t| + u |w|.

    Where one of the low parts is zero t is the other one, where both are, w = e. RN(hi + hi') and w are added up by
    `fast_two_sum`: let |hi| >= |hi'|. If |hi'| < |hi| / 2, then |w| <= 4 u |hi| is below |RN(hi + hi')|. Else this is a
    multiple of ulp(hi') >= u |hi| / 2, hence of ulp(w) <= 8 u^2 |hi|.
    """
    total, error = two_sum(a.hi, b.hi)
    lows = [part for part in (a.lo, b.lo) if not is_zero(part)]
    rads = [part for part in (a.rad, b.rad) if not is_zero(part)]
    if not lows:
        return DoubleDouble(total, error, _sum_of_rads(rads, total))
    low = lows[0] if len(lows) == 1 else lows[0] + lows[1]
    rest = error.add_(low)
    rad = rest.abs()
    if len(lows) == 2:
        rad = rad.add_(low.abs_())
    rad = rad.mul_(U * INFLATE)
    for part in rads:
        rad = rad.add_(part, alpha=INFLATE)
    return DoubleDouble(*fast_two_sum(total, rest), rad)


def _sum_of_rads(rads: list[Tensor], like: Tensor) -> Tensor:
    if not rads:
        return like.new_zeros(())
    return rads[0] if len(rads) == 1 else (rads[0] + rads[1]).mul_(INFLATE)


def negate(a: DoubleDouble) -> DoubleDouble:
    """-a."""
    return DoubleDouble(-a.hi, a.lo if is_zero(a.lo) else -a.lo, a.rad)


def subtract(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a - b."""
    return add(a, negate(b))


def scale(a: DoubleDouble, power: float | Tensor) -> DoubleDouble:
    """Return a times a power of two (with a sign): exact but for underflow, which takes at most eta from each part."""
    hi, lo = a.hi * power, a.lo if is_zero(a.lo) else a.lo * power
    rad = a.rad if is_zero(a.rad) else a.rad * (power.abs() if isinstance(power, Tensor) else abs(power))
    if not all_finite(hi):
        rad = rad + (hi - hi)  # NaN where it overflows
    if _some_tiny(size := hi.abs()):
        rad = _with_underflow(rad, size, 0.0, a.abs_upper() != 0)
    return DoubleDouble(hi, lo, rad)


def _power_of_two(a: DoubleDouble) -> float | None:
    """Return the number where it is one power of two, with a sign, and exact."""
    if a.hi.dim() or not (is_zero(a.lo) and is_zero(a.rad)):
        return None
    fraction, exponent = math.frexp(float(a.hi))
    return float(a.hi) if abs(fraction) == 0.5 and abs(exponent) < 900 else None


def multiply(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a b = p + e + hi lo' + lo hi' + lo lo', p + e = hi hi'.

    Both products with a low part are at most (1 + 2u) u |p|, rounded with u^2 |p| each; the sums e + hi lo' and w, that
    and lo hi', err by 2 u^2 |p| and 3 u^2 |p|; lo lo' is left out, u^2 |p|. Together 8 u^2 |p| to first order in u; 9
    are taken. For exact operands p + e is the product.
    """
    for one, other in ((a, b), (b, a)):
        power = _power_of_two(one)
        if power is not None:
            return scale(other, power)
    product, error = two_product(a.hi, b.hi)
    if all(is_zero(part) for part in (a.lo, a.rad, b.lo, b.rad)):
        rad = product.new_zeros(())
        tiny = _some_tiny(product.abs())
        return DoubleDouble(product, error, _product_underflow(rad, product, a, b) if tiny else rad)
    for high, low in ((a.hi, b.lo), (b.hi, a.lo)):
        if not is_zero(low):
            error = error.addcmul_(high, low)
    rad, tiny = _product_rad(*((a, b) if a.hi.numel() >= b.hi.numel() else (b, a)))
    if tiny:
        rad = _product_underflow(rad, product, a, b)
    return DoubleDouble(*fast_two_sum(product, error), rad)


def _product_rad(a: DoubleDouble, b: DoubleDouble) -> tuple[Tensor, bool]:
    """Return |hi| (9 u^2 |hi'| + r') + r (|hi'| + r'), and whether products may underflow.

    b is the smaller tensor of two: what can be done to one operand is done to it.
    """
    size, other = a.hi.abs(), b.hi.abs()
    share = other * (9 * U * U * INFLATE)
    if not is_zero(b.rad):
        share = share.add(b.rad, alpha=INFLATE)
    rad = size * share
    if not is_zero(a.rad):
        rad = rad.addcmul_(a.rad, other if is_zero(b.rad) else other + b.rad, value=INFLATE)
    return rad, _some_tiny(size, other)


def _some_tiny(*sizes: Tensor) -> bool:
    """Return True unless the product of these is TINY or more, whichever elements meet; True also beside a NaN."""
    return all(size.numel() for size in sizes) and not math.prod(float(size.amin()) for size in sizes) >= TINY


def _product_underflow(rad: Tensor, product: Tensor, a: DoubleDouble, b: DoubleDouble) -> Tensor:
    return _with_underflow(rad, product.abs(), 2.0**-20, (a.abs_upper() != 0) & (b.abs_upper() != 0))


def _with_underflow(rad: Tensor, size: Tensor, share: float, nonzero: Tensor) -> Tensor:
    """Add the error of results below TINY that are not exactly zero.

    Products of halves are rounded to multiples of eta there. With |a_high b_high - p| <= 2^-25 |p| and three smaller
    products, the computed error of p is at most 2^-22 |p| + 4 eta whatever it is, the true one u |p| + eta. The radius'
    own products lose no more than eta each.
    """
    return rad + torch.where((size < TINY) & nonzero, size * share + 8 * ETA, 0.0)


def square(a: DoubleDouble) -> DoubleDouble:
    """Return a^2, as `multiply` does: e + 2 hi lo errs by 5 u^2 p, lo^2 is left out, u^2 p; 7 are taken.

    Operand: (2 |hi| + r) r.
    """
    if is_zero(a.lo):
        return multiply(a, a)
    product, error = two_product(a.hi, a.hi)
    error = error.addcmul_(a.hi, a.lo, value=2.0)
    size = a.hi.abs()
    tiny = _some_tiny(size, size)
    share = size * (7 * U * U * INFLATE)
    if not is_zero(a.rad):
        share = share.add(a.rad, alpha=2 * INFLATE)
    rad = share.mul(size)
    if not is_zero(a.rad):
        rad = rad.addcmul_(a.rad, a.rad, value=INFLATE)
    if tiny:
        rad = _product_underflow(rad, product, a, a)
    return DoubleDouble(*fast_two_sum(product, error), rad)


def divide(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Return a / b = q + (a - q b) / b with q = RN(hi / hi').

    hi - q hi' is a float64 number, found without error. r = that + (lo - q lo'): the product errs by u^2 |a|, the
    difference by 2 u^2 |a|, the sum (at most 4 u |a|) by 4 u^2 |a|. r / hi' in place of r / b: 4 u^2 |q|, and its
    rounding 4 u^2 |q|. Together 15 u^2 |q| to first order; 16 are taken.

    Operands: (a + s) / (b + t) - a / b = (s - t a / b) / (b + t).
    """
    power = _power_of_two(b)
    if power is not None:
        return scale(a, 1 / power)
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
