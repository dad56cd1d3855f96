"""The normal distribution: Phi(x), the share of it below x, and exp(-x^2 / 2), which its derivative is made of."""

from __future__ import annotations

import functools

import flint
import torch

from kernels_core.doubles.arithmetic import add, multiply, scale, square
from kernels_core.doubles.functions import exp
from kernels_core.doubles.number import DoubleDouble, exactly, number, select, within
from kernels_core.doubles.order import absolute
from kernels_core.doubles.taylor import Table, tabulate

_END = 38.5  # of the table, 2464 centres


@functools.cache
def _mills_table() -> Table:
    # exp(x^2 / 2) Phi(-x) = 1 / sqrt(2 pi) int_0^inf exp(-t^2 / 2 - x t) dt: for all x every |derivative| falls
    return tabulate([_mills], 2.0**-6, 0, 2466, steepest=-1)


def _mills(x: flint.arb_series) -> flint.arb_series:
    return (x * x / 2).exp() * (x / flint.arb(2).sqrt()).erfc() / 2


def distribution(x: DoubleDouble) -> tuple[DoubleDouble, DoubleDouble]:
    """Return Phi(x) and exp(-x^2 / 2).

    t = Phi(-|x|) = exp(-x^2 / 2) m(|x|) keeps its relative accuracy. Phi is t for negative x and 1 - t for others.
    """
    gauss = exp(scale(square(x), -0.5))
    tail = _tail(absolute(x), gauss)
    above = (x.hi >= 0).to(torch.float64)
    sign = 1 - 2 * above
    signed = DoubleDouble(tail.hi * sign, tail.lo * sign, tail.rad)
    return add(exactly(above), signed), gauss


def _tail(size: DoubleDouble, gauss: DoubleDouble) -> DoubleDouble:
    """Return Phi(-size), beyond the table as 0: it is below Phi(-37.5) < 2^-1020 there, for radii up to 1."""
    if size.hi.numel() and float(size.hi.amax()) <= _END:
        return multiply(gauss, _mills_table()(size))
    far = ~(size.hi <= _END)
    near = multiply(gauss, _mills_table()(select(far, number(1.0), size)))
    rad = within(2.0**-1020, (size.rad <= 1) & size.hi.isfinite())
    zero = size.hi.new_zeros(())
    return select(far, DoubleDouble(torch.zeros_like(size.hi), zero, rad), near)
