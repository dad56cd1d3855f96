"""Signs and exponents taken apart: copysign, signbit, the angle of a real number, frexp. All exact, all with jumps."""

from __future__ import annotations

import math
from typing import Any

import flint
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotSeparatedError, Numbers
from kernels_core.filter.arithmetic import DISCRETE, INFLATE, Local
from kernels_core.rules.cones import broadcast_cone, elementwise_exact, elementwise_tiles, integer_value
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family, Rule

Tensor = torch.Tensor


def _may_flip(value: Any) -> Tensor | None:
    """Return True where an enclosure holds both signs, None where none does."""
    mid, bound = parts(value)
    return None if bound is None else (bound > 0) & ~(mid.abs() > bound * DISCRETE)


def copysign(local: Local, a: Enclosure, b: Any) -> Enclosure:
    """|a| with the sign of b, either sign where that of b is not certain."""
    x, reach = parts(a)
    mid = torch.copysign(x, b.mid if isinstance(b, Enclosure) else b)
    flips = _may_flip(b)
    if flips is None:
        return Enclosure(mid, None if reach is None else reach.expand(mid.shape))
    if bool(flips.any()):
        local.lose_rad()
    own = mid.new_zeros(()) if reach is None else reach
    return Enclosure(mid, own + torch.where(flips, 2 * x.abs() * INFLATE, 0.0))


def signbit(local: Local, a: Enclosure) -> Enclosure:
    """Return True where a is negative or -0."""
    return Enclosure(torch.signbit(a.mid), None, _may_flip(a) if a.floating else a.unsure)


def angle(local: Local, a: Enclosure) -> Enclosure:
    """Return pi where a < 0, else 0."""
    x = parts(a)[0]
    mid = torch.where(x < 0, math.pi, torch.where(x.isnan(), x, 0.0))
    flips = _may_flip(a)
    value = local.rounded(mid, None, 1.0)
    bound = torch.where(mid == 0, 0.0, value.bound_or_zero())
    bound = torch.where(mid.isnan(), 0.0, bound)
    if flips is not None and bool(flips.any()):
        local.lose_rad()
        unknown = mid.isnan() | a.bound_or_zero().isinf()  # NaN perhaps, whose angle is NaN
        bound = torch.where(flips, torch.where(unknown, torch.inf, 4.0), bound)
    return Enclosure(mid, bound)


def frexp(local: Local, a: Enclosure) -> tuple[Enclosure, Enclosure]:
    """Return (m, e) with a = m 2^e, 1/2 <= |m| < 1; nothing is known where the bound reaches another exponent."""
    x, reach = parts(a)
    mantissa, exponent = torch.frexp(x)
    if reach is None:
        return Enclosure(mantissa), Enclosure(exponent)
    ends = [torch.frexp(x + side * reach * DISCRETE) for side in (-1.0, 1.0)]
    jumps = (reach > 0) & ((ends[0][1] != exponent) | (ends[1][1] != exponent) | (ends[0][0] * ends[1][0] <= 0))
    if bool(jumps.any()):
        local.lose_rad()
    bound = torch.where(jumps, torch.inf, torch.ldexp(reach, -exponent))
    return Enclosure(mantissa, bound), Enclosure(exponent, None, jumps)


def _frexp_exact(call: Any, values: Any) -> Any:
    if call.output:
        return integer_value(call)
    n = call.numbers

    def mantissa(x: Any) -> Any:
        x = n.real(x)
        return x if n.equal(x, n.real(0)) else x * n.real(2) ** -_exponent(n, abs(x))

    return n.each(mantissa, values)


def _exponent(n: Numbers, size: Any) -> int:
    """Return e with 2^(e - 1) <= size < 2^e."""
    e = 0
    while not n.less(size, n.real(2) ** e):
        e += 1
    while n.less(size, n.real(2) ** (e - 1)):
        e -= 1
    return e


def _negative(n: Numbers, value: Any) -> bool:
    """Return True below zero; the sign of a zero is known to the filter alone."""
    sign = n.sign(n.real(value))
    if sign == 0:
        raise NotSeparatedError
    return bool(sign < 0)


def _exact_copysign(n: Numbers, a: Any, b: Any) -> Any:
    def one(x: Any, y: Any) -> Any:
        return -abs(n.real(x)) if _negative(n, y) else abs(n.real(x))

    return n.each(one, a, b)


def _exact_angle(n: Numbers, a: Any) -> Any:
    return n.ball(lambda x: flint.arb.pi() if n.less(x, flint.arb(0)) else flint.arb(0), a)


def _rule(name: str, bound: Any, exact: Any) -> Rule:
    return Rule(name, bound, broadcast_cone, exact, elementwise_tiles, classed=True)


FAMILY = Family()
FAMILY.add(
    _rule("aten.copysign.Tensor", copysign, elementwise_exact(_exact_copysign)),
    _rule("aten.copysign.Scalar", copysign, elementwise_exact(_exact_copysign)),
    _rule("aten.signbit.default", signbit, elementwise_exact(lambda n, a: n.each(lambda x: _negative(n, x), a))),
    _rule("aten.angle.default", angle, elementwise_exact(_exact_angle)),
    _rule("aten.frexp.Tensor", frexp, _frexp_exact),
)
