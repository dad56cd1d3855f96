"""The class of a matrix product whose operands hold infinities or NaN.

An operand element is one of: certainly infinite or NaN; certainly zero; of certain sign (|mid| > bound, or infinite);
ambiguous (zero within its bound); loose (nothing known). The sum over k of a_ik b_kj is

    unknown            where a loose element takes part, or an infinity meets an ambiguous element
    certainly NaN      where a NaN takes part, an infinity meets a zero, or infinite terms of both signs meet
    certainly +-inf    where all infinite terms have this sign
    as bounded         otherwise

A certain NaN wins over unknown terms. The terms are counted by products of 0-1 matrices, in float64.
"""

from __future__ import annotations

import torch

from kernels_core.enclosure import Enclosure


class _Kinds:
    """The 0-1 matrices of one operand."""

    def __init__(self, value: Enclosure) -> None:
        mid = value.mid
        bound = value.bound_or_zero()
        exact = bound == 0
        self.nan = mid.isnan() & exact
        self.infinite = mid.isinf() & exact
        self.loose = ~bound.isfinite() | (~mid.isfinite() & ~exact)
        zero = (mid == 0) & exact
        signed = self.infinite | (mid.isfinite() & (mid.abs() > bound))
        self.zero = zero.double()
        self.sign = torch.where(signed, mid.sign(), 0.0)
        self.ambiguous = ~(zero | signed | self.nan)
        self.weight = self.infinite.double()


def classed_product(a: Enclosure, b: Enclosure, value: Enclosure) -> Enclosure:
    """Return `value`, the enclosure of a @ b as float64 and the bound rule gave it, with classes as in the module."""
    x, y = _Kinds(a), _Kinds(b)

    def met(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Count the terms where an infinity of one operand meets `left` or `right` of the other."""
        return x.weight @ right.double() + left.double() @ y.weight

    signs = (x.weight * x.sign) @ y.sign + x.sign @ (y.weight * y.sign)
    count = met(x.sign.abs(), y.sign.abs())
    not_a_number = (
        x.nan.any(-1, keepdim=True) | y.nan.any(-2, keepdim=True) | (met(x.zero, y.zero) > 0) | (signs.abs() < count)
    )
    unknown = x.loose.any(-1, keepdim=True) | y.loose.any(-2, keepdim=True) | (met(x.ambiguous, y.ambiguous) > 0)
    infinite = (count > 0) & ~unknown
    mid, bound = value.mid, value.bound_or_zero()
    mid = torch.where(infinite, signs.sign() * torch.inf, torch.where(unknown | ~mid.isfinite(), torch.nan, mid))
    mid = torch.where(not_a_number, torch.nan, mid)
    bound = torch.where(unknown | ~mid.isfinite() | bound.isnan(), torch.inf, bound)
    return Enclosure(mid, torch.where(infinite | not_a_number, 0.0, bound))
