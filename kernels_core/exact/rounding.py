"""Exact values and balls of FLINT, rounded once to a format: to nearest, ties to even (IEEE 754-2019, clause 4.3.1)."""

from __future__ import annotations

import math

import flint

from kernels_core.formats import Format


def round_rational(q: flint.fmpq, fmt: Format) -> float:
    """Return RN_F(q), exactly; overflow gives +-`fmt.overflow` (NaN has no sign here)."""
    numerator, denominator = int(q.p), int(q.q)
    return _stored(_round_quotient(numerator, denominator, 0, fmt), fmt)


def round_ball(ball: flint.arb, fmt: Format) -> float | None:
    """Return RN_F of every number in the ball where they all round alike, else None.

    An exact infinity rounds to +-`fmt.overflow`; a ball that contains NaN, or is unbounded, gives None.
    """
    if ball.is_nan():
        return None
    if ball.is_exact():
        return _stored(_round_exact(ball, fmt), fmt)
    if not ball.is_finite():
        return None
    # At this precision the ends are rounded outwards by less than 2^-64 of the midpoint: the ball may only grow.
    with flint.ctx.workprec(int(ball.mid().bits()) + 64):
        lower, upper = _round_exact(ball.lower(), fmt), _round_exact(ball.upper(), fmt)
    return _stored(lower, fmt) if lower == upper else None


def _round_exact(point: flint.arb, fmt: Format) -> float:
    if not point.is_finite():
        return math.inf if point > 0 else -math.inf
    mantissa, exponent = point.man_exp()
    return _round_quotient(int(mantissa), 1, int(exponent), fmt)


def _round_quotient(numerator: int, denominator: int, exponent: int, fmt: Format) -> float:
    """Return RN_F(numerator / denominator * 2^exponent), with an infinity for overflow in every format."""
    if numerator == 0:
        return 0.0
    sign, numerator = (1.0 if numerator > 0 else -1.0), abs(numerator)
    # 2^(size-1) < |value| < 2^(size+1): what is certainly too large or too small is settled without long shifts.
    size = numerator.bit_length() - denominator.bit_length() + exponent
    if size - 1 > fmt.emax:
        return sign * math.inf
    if size + 1 < fmt.emin - fmt.precision:
        return sign * 0.0
    quantum = max(size - 1, fmt.emin) - fmt.precision + 1
    multiple, rest, divisor = _divide(numerator, denominator, exponent - quantum)
    if multiple.bit_length() > fmt.precision:  # the value is at least 2^size: one bit less is kept
        quantum += 1
        multiple, rest, divisor = _divide(numerator, denominator, exponent - quantum)
    if 2 * rest > divisor or (2 * rest == divisor and multiple % 2):
        multiple += 1
    if multiple.bit_length() + quantum > fmt.emax + 1:
        return sign * math.inf
    value = math.ldexp(multiple, quantum)
    return sign * (value if value <= fmt.max_finite else math.inf)


def _divide(numerator: int, denominator: int, shift: int) -> tuple[int, int, int]:
    """Return quotient, remainder and divisor of numerator * 2^shift / denominator."""
    numerator, denominator = numerator << max(shift, 0), denominator << max(-shift, 0)
    return *divmod(numerator, denominator), denominator


def _stored(value: float, fmt: Format) -> float:
    return math.copysign(fmt.overflow, value) if math.isinf(value) else value
