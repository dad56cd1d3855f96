"""Elementary functions of double-double numbers.

Each is a reduction of the argument, a table of Taylor polynomials (taylor.py) or a Newton step with one of these, and
operations of arithmetic.py, so that its radius is the sum of theirs; what is left out is bounded beside the line.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import flint
import torch

from kernels_core.doubles.arithmetic import add, divide, multiply, negate, reciprocal, scale, square, subtract
from kernels_core.doubles.error_free import fast_two_sum, two_sum
from kernels_core.doubles.number import (
    ETA,
    INFLATE,
    TINY,
    DoubleDouble,
    U,
    constant,
    exactly,
    is_zero,
    number,
    select,
    unknown,
    within,
)
from kernels_core.doubles.order import absolute, nonnegative
from kernels_core.doubles.taylor import Table, at_precision, tabulate

Tensor = torch.Tensor


_LN2_LOW = -780.0  # exp of less is below 2^-1125
_BITS = 32  # of the leading parts of a constant that multiples of are taken away: k times one is exact for |k| < 2^20


@functools.cache
def _parts(value: Callable[[], flint.arb]) -> tuple[float, float, float, float]:
    """Return three numbers that add up to a constant, two of them of 32 bits, and a bound of what they leave."""
    rest, found = value(), []
    for _ in range(2):
        unit = math.ldexp(1.0, math.frexp(float(rest.mid()))[1] - _BITS)
        found.append(round(float((rest / unit).mid())) * unit)
        rest = rest - found[-1]
    last = float(rest.mid())
    return found[0], found[1], last, abs(last) * 2.0**-52


def _reduced(x: DoubleDouble, count: Tensor, value: Callable[[], flint.arb]) -> DoubleDouble:
    """Return x - k c for a constant c of ln 2 or pi / 2 and the integer k nearest to x / c, |k| < 2^20.

    c = p + p' + p'' and a rest, p and p' of 32 bits, so that k p and k p' are exact. For k != 0 is |hi| >= 0.49 c, and
    hi - k p, at most 0.52 c, a multiple of ulp(hi) of less than 53 bits: exact. high = RN(that - k p') is off by e, |e|
    <= 0.54 u c, and a multiple of 2^-70. low is lo + e - k p'': with |x| <= 1.51 |k| c the first sum is at most 2.06 u
    |k| c, the other one too and k p'' at most 2^-62 |k| c. Their roundings are 4.2 u^2 |k| c; 5 are taken. low is below
    2^-30, its ulp below that of high: the last sum is a fast one. For k = 0 nothing is rounded.
    """
    first, second, last, left = at_precision(lambda: _parts(value))
    high, lost = two_sum(torch.sub(x.hi, count, alpha=first), count * -second)
    low = lost.add_(x.lo).add_(count, alpha=-last)
    rad = count.abs().mul_((5 * U * U * first + left) * INFLATE)
    if not is_zero(x.rad):
        rad = rad.add_(x.rad, alpha=INFLATE)
    return DoubleDouble(*fast_two_sum(high, low), rad)


def power_of_two(exponent: Tensor) -> Tensor:
    """Return 2^exponent for integers from -1022 to 1023."""
    return exponent.to(torch.int64).add_(1023).bitwise_left_shift_(52).view(torch.float64)


def _scaled(a: DoubleDouble, exponent: Tensor) -> DoubleDouble:
    """Return a 2^exponent, in two steps that each are in float64's range, where one is not enough."""
    if exponent.numel() and float(exponent.abs().amax()) <= 1000:
        return scale(a, power_of_two(exponent))
    half = (exponent / 2).round()
    return scale(scale(a, power_of_two(half)), power_of_two(exponent - half))


# Exponentials ---------------------------------------------------------------------------------------------------------


@functools.cache
def _expm1_table() -> Table:
    return tabulate([lambda s: s.exp() - 1], 2.0**-9, -192, 192)


@functools.cache
def _exp_table() -> Table:
    return tabulate([flint.arb_series.exp], 2.0**-11, -720, 720, steepest=1)


def _halved(x: DoubleDouble) -> tuple[Tensor, DoubleDouble]:
    """Return k and x - k ln 2, no larger than 0.351; what is said of it holds for |k| < 1100."""
    count = (x.hi * 1.4426950408889634).clamp_(-1200, 1100).round_().nan_to_num_()
    return count, _reduced(x, count, flint.arb.const_log2)


def exp(x: DoubleDouble) -> DoubleDouble:
    """Return the exponential: that of r = x - k ln 2, times 2^k."""
    count, rest = _halved(x)
    found = _scaled(_exp_table()(rest), count)
    if x.hi.numel() and float(x.hi.amin()) >= _LN2_LOW:
        return found
    low = x.hi < _LN2_LOW
    if not bool(low.any()):
        return found
    zero = (x.hi == -torch.inf) & (x.lo == 0) & (x.rad == 0)  # not what has overflowed
    rad = within(ETA, x.rad.expand(x.shape) <= 1).masked_fill_(zero, 0.0)
    return select(low, DoubleDouble(torch.zeros_like(x.hi), x.hi.new_zeros(()), rad), found)


def expm1(x: DoubleDouble) -> DoubleDouble:
    """Return exp(x) - 1 = 2^k t + (2^k - 1), t = exp(r) - 1."""
    count, rest = _halved(x)
    rest = _expm1_table()(rest)
    power = power_of_two(count.clamp(-1000, 1023))
    known = (count > -1000) & (count < 1024)
    high, low = two_sum(power, power.new_tensor(-1.0))
    found = add(DoubleDouble(high, low, high.new_zeros(())), scale(rest, power))
    if bool(known.all()):
        return found
    minus = DoubleDouble(torch.full_like(x.hi, -1.0), x.hi.new_zeros(()), within(TINY, x.rad.expand(x.shape) <= 1))
    return select(x.hi < -650, minus, unknown(found, ~known))


def exp2(x: DoubleDouble) -> DoubleDouble:
    """exp(x ln 2)."""
    return exp(multiply(x, named("ln 2")))


def sigmoid(x: DoubleDouble) -> DoubleDouble:
    """1 / (1 + exp(-x)), or exp(x) / (1 + exp(x)) for negative x."""
    power = exp(negate(absolute(x)))
    return divide(select(x.hi < 0, power, number(1.0)), add(power, number(1.0)))


def tanh(x: DoubleDouble) -> DoubleDouble:
    """-t / (2 + t) for t = expm1(-2 |x|), with the sign of x."""
    power = expm1(negate(scale(absolute(x), 2.0)))
    return with_sign(divide(negate(power), add(power, number(2.0))), x.hi)


def with_sign(a: DoubleDouble, sign: Tensor) -> DoubleDouble:
    """Return -a where `sign` is negative."""
    return select(sign < 0, negate(a), a)


def sinh(x: DoubleDouble) -> DoubleDouble:
    """(t + t / (1 + t)) / 2 for t = expm1(|x|)."""
    power = expm1(absolute(x))
    return with_sign(scale(add(power, divide(power, add(power, number(1.0)))), 0.5), x.hi)


def cosh(x: DoubleDouble) -> DoubleDouble:
    """(t + 1 / t) / 2 for t = exp(|x|)."""
    power = exp(absolute(x))
    return scale(add(power, reciprocal(power)), 0.5)


def softplus(x: DoubleDouble) -> DoubleDouble:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))."""
    return add(nonnegative(x), log1p(exp(negate(absolute(x)))))


# Logarithms -----------------------------------------------------------------------------------------------------------


def _log_near_one(x: DoubleDouble) -> DoubleDouble:
    """log(1 + x) for -0.3 <= x <= 0.42: y + log(1 + d), y float64's value, d = (1 + x) exp(-y) - 1.

    d = x + t + x t with t = expm1(-y): relative accuracy near x = 0. |log(1 + d) - d + d^2 / 2| <= |d|^3 / 2.
    """
    near = x.hi.clamp(-0.3, 0.42)
    start = torch.log1p(near)
    power = _expm1_table()(exactly(-start))
    d = add(add(x, power), multiply(x, power))
    size = d.hi.abs()
    rad = d.rad * (1 + 2.0**-28) + size * size * (size + U) + (size > 0).to(size) * ETA
    found = add(exactly(start), DoubleDouble(d.hi, d.lo - d.hi * d.hi / 2, rad))
    return unknown(found, ~(size + d.rad <= 2.0**-30))


def log(x: DoubleDouble) -> DoubleDouble:
    """Return k ln 2 + log m for x = 2^k m, m between sqrt(1/2) and sqrt(2)."""
    mantissa, exponent = torch.frexp(x.hi)
    count = exponent.to(torch.float64) - (mantissa < 0.7071067811865476).to(torch.float64)
    count = torch.where(x.hi.isfinite() & (x.hi > 0), count, 0.0)
    small = _log_near_one(subtract(_scaled(x, -count), number(1.0)))
    return unknown(add(multiply(exactly(count), named("ln 2")), small), ~(x.hi > 0))


def log1p(x: DoubleDouble) -> DoubleDouble:
    """log(1 + x), near zero without forming 1 + x."""
    near = (x.hi > -0.29) & (x.hi < 0.41)
    return select(near, _log_near_one(x), log(add(x, number(1.0))))


def log2(x: DoubleDouble) -> DoubleDouble:
    """log(x) / ln 2."""
    return multiply(log(x), named("1 / ln 2"))


def log10(x: DoubleDouble) -> DoubleDouble:
    """log(x) / ln 10."""
    return multiply(log(x), named("1 / ln 10"))


def power(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """x^y = exp(y log x) for x > 0."""
    return exp(multiply(y, log(x)))


# Trigonometric functions ----------------------------------------------------------------------------------------------

_QUARTERS = 2.0**20


def _half_pi() -> flint.arb:
    return flint.arb.pi() / 2


@functools.cache
def _sine_table() -> Table:
    return tabulate([flint.arb_series.sin, flint.arb_series.cos], 2.0**-5, -26, 26)


def _turned(x: DoubleDouble, turn: int) -> DoubleDouble:
    """sin(x + turn pi / 2): one of +-sin r, +-cos r with r = x - k pi / 2."""
    count = (x.hi * 0.6366197723675814).round_()
    known = count.abs() < _QUARTERS
    count = torch.where(known, count, 0.0)
    quarter = (count.to(torch.int64) + turn) & 3
    found = _sine_table()(_reduced(x, count, _half_pi), (quarter & 1) * 53)
    return unknown(select(quarter >= 2, negate(found), found), ~known)


def sin(x: DoubleDouble) -> DoubleDouble:
    """Return the sine for |x| < 2^20."""
    return _turned(x, 0)


def cos(x: DoubleDouble) -> DoubleDouble:
    """Return the cosine for |x| < 2^20."""
    return _turned(x, 1)


def tan(x: DoubleDouble) -> DoubleDouble:
    """sin(x) / cos(x)."""
    return divide(sin(x), cos(x))


@functools.cache
def _atan_table() -> Table:
    return tabulate([flint.arb_series.atan], 2.0**-5, -33, 33)


def atan(x: DoubleDouble) -> DoubleDouble:
    """Return the arctangent, for |x| > 1 as pi / 2 less that of 1 / |x|."""
    size = absolute(x)
    far = size.hi > 1
    table = _atan_table()
    near = table(select(far, number(0.0), size))
    if not bool(far.any()):
        return with_sign(near, x.hi)
    beyond = subtract(named("pi / 2"), table(reciprocal(select(far, size, number(1.0)))))
    return with_sign(select(far, beyond, near), x.hi)


# Error function -------------------------------------------------------------------------------------------------------

_ERF_END = 9.0
_ERFC_END = 27.3


@functools.cache
def _erf_table() -> Table:
    return tabulate([flint.arb_series.erf], 2.0**-4, -145, 145)


@functools.cache
def _erfcx_table() -> Table:
    # exp(x^2) erfc(x) = 2 / sqrt(pi) int_0^inf exp(-t^2 - 2 x t) dt: for all x every |derivative| falls
    return tabulate([lambda s: (s * s).exp() * s.erfc()], 2.0**-5, 0, 876, steepest=-1)


def erf(x: DoubleDouble) -> DoubleDouble:
    """Return the error function, above 9 as 1: the rest is erfc(8) < 2^-95 at most, for radii up to 1."""
    found = _erf_table()(x)
    far = x.hi.abs() > _ERF_END
    if not bool(far.any()):
        return found
    rad = within(2.0**-95, (x.rad <= 1) & x.hi.isfinite())
    return select(far, DoubleDouble(x.hi.sign(), x.hi.new_zeros(()), rad), found)


def erfc(x: DoubleDouble) -> DoubleDouble:
    """Return t = exp(-x^2) erfcx(|x|), which keeps the relative accuracy of small values, and 2 - t for negative x.

    Above 27.3 nothing is known; below -9 it is 2: the rest is at most erfc(8) < 2^-95, for radii up to 1.
    """
    gauss = exp(negate(square(x)))
    size, negative = absolute(x), x.hi < 0
    far = torch.where(negative, size.hi > _ERF_END, ~(size.hi < _ERFC_END))
    if not bool(far.any()):
        tail = multiply(gauss, _erfcx_table()(size))
    else:
        tail = multiply(gauss, _erfcx_table()(select(far, number(1.0), size)))
        rad = within(2.0**-95, negative & (x.rad <= 1) & x.hi.isfinite())
        tail = select(far, DoubleDouble(torch.zeros_like(x.hi), x.hi.new_zeros(()), rad), tail)
    return select(negative, subtract(number(2.0), tail), tail) if bool(negative.any()) else tail


# Constants ------------------------------------------------------------------------------------------------------------

_CONSTANTS: dict[str, Callable[[], flint.arb]] = {
    "ln 2": flint.arb.const_log2,
    "1 / ln 2": lambda: 1 / flint.arb.const_log2(),
    "1 / ln 10": lambda: 1 / flint.arb(10).log(),
    "1 / sqrt 2": lambda: 1 / flint.arb(2).sqrt(),
    "pi / 2": _half_pi,
    "1 / sqrt(2 pi)": lambda: 1 / (2 * flint.arb.pi()).sqrt(),
    "2 / sqrt pi": lambda: 2 / flint.arb.pi().sqrt(),
    "sqrt(2 / pi)": lambda: (2 / flint.arb.pi()).sqrt(),
}


@functools.cache
def named(name: str) -> DoubleDouble:
    """Return a constant by its formula."""
    return at_precision(lambda: constant(_CONSTANTS[name]()))
