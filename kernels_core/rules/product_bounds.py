"""The bound of a sum of products, for any bilinear operation.

With A, B the bounds of the operands and K the inner dimension, for any order of summation, with or without FMA:

    |c' - c| <= |a| B + A (|b| + B) + K u_sum (|a| + A)(|b| + B) + K eta_sum

Source: Jeannerod and Rump, SIMAX 34 (2013), theorem 4.2: n u |x|^T |y| without a limit on n, barring underflow in the
products; each of the K products may underflow by eta_acc / 2, which the further additions can only add up.

A summand is one term more, at any place of the sum; alpha may be multiplied into an operand or into the product, beta
into the summand, and each of these products is rounded once more. All is rounded once to a 16-bit result.

A profile may declare other orders (growth.py), narrower operands (matmul_inputs.py), a split inner dimension whose
parts are rounded to the result's format, or a truncating accumulator, whose bound (block_products.py) is taken where it
is the larger one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.profiles.blocks import BlockAccumulator
from kernels_core.rules.block_products import accumulator_of, block_error
from kernels_core.rules.nonnegative import Weight, nonnegative_product
from kernels_core.rules.sequential import after_sum, of_product


class Addend(NamedTuple):
    """A term that is added to a sum of products: value, bound (None where exact), and roundings before it is added."""

    mid: torch.Tensor
    bound: torch.Tensor | None
    roundings: float = 0.0

    def bound_or_zero(self) -> torch.Tensor:
        """Return the bound as a tensor."""
        return self.mid.new_zeros(()) if self.bound is None else self.bound


def relative_error(inner: int, u: float, more: float = 0.0) -> float:
    """Return (1 + K u)(1 + u)^more - 1: the relative error granted to each term of a sum of K products."""
    extra = more * u * (1 + more * u)
    return (inner * u + extra + inner * u * extra) * INFLATE


def granted(local: Local, inner: int, more: float, results: int) -> float:
    """Return `relative_error` in the order and the accumulator of the profile, for `results` sums."""
    growth = local.dot_error(inner, results)
    extra = _power(more + local.split_roundings, local.u_acc)
    return (growth + extra + growth * extra) * INFLATE


def _power(more: float, u: float) -> float:
    """Return (1 + u)^more - 1 or an upper bound of it."""
    return more * u * (1 + more * u) if more * u <= 1 else math.expm1(more * u)


def product_bound(
    local: Local,
    multiply: Callable[..., torch.Tensor],
    a: Enclosure,
    b: Enclosure,
    inner: int,
    more: float,
    mid: torch.Tensor,
    addend: Addend | None = None,
) -> torch.Tensor:
    """Return the bound of the module for any bilinear `multiply`, and an addend where there is one.

    Args:
        local: of the step.
        multiply: a sum of `inner` products of one element of each operand.
        a: as the kernel may read it (matmul_inputs.py).
        b: as `a`.
        inner: K.
        more: roundings on each product's path besides those of the sum.
        mid: multiply(a.mid, b.mid).
        addend: broadcasts against the result.
    """
    more_here = more + (local.sum_rounding if addend is not None else 0.0)
    bound = _weighted(local, multiply, a, b, inner, granted(local, inner, more_here, mid.numel()))
    if _is_in_order(local, multiply, inner):
        bound = torch.minimum(bound, _in_order(local, multiply, a, b, mid, _power(more_here, local.u_acc)))
    bound.add_((inner * local.eta_sum + local.split_roundings * local.u_acc / local.u * local.eta) * INFLATE)
    if addend is not None:
        slope = granted(local, inner, addend.roundings + local.sum_rounding, mid.numel()) * after_sum(local, inner)
        own = addend.mid.abs().mul_(slope).add_(addend.bound_or_zero(), alpha=1 + slope)
        bound = bound.add_(own.mul_(INFLATE)).add_(2 * local.eta_sum)
    accumulator = accumulator_of(local, (a, b))
    if accumulator is None:
        return bound
    truncated = _truncated(local, accumulator, multiply, (a, b), inner, more, mid, addend)
    alone = accumulator.alone and not (local.profile is not None and local.profile.accumulate)
    return truncated if alone else torch.maximum(bound, truncated)


def _is_in_order(local: Local, multiply: Callable[..., torch.Tensor], inner: int) -> bool:
    """Return True where the profile says in which order the products are added; batches are added in any order."""
    known = multiply in (torch.mm, torch.bmm) and local.step.name != "aten.addbmm.default"
    return local.sequential and known and inner > 1 and not local.split_roundings


def _in_order(
    local: Local, multiply: Callable[..., torch.Tensor], a: Enclosure, b: Enclosure, mid: torch.Tensor, more: float
) -> torch.Tensor:
    """Return the bound where the products are added one after the other (sequential.py), a summand apart."""
    inner = a.mid.shape[-1]
    size, moved = _weighted(local, multiply, a, b, inner, 1.0), _moved(local, multiply, a, b, inner, 0.0)
    return of_product(local, a.mid, b.mid, mid, size, moved, more) + moved


def _truncated(
    local: Local,
    accumulator: BlockAccumulator,
    multiply: Callable[..., torch.Tensor],
    operands: tuple[Enclosure, Enclosure],
    inner: int,
    more: float,
    mid: torch.Tensor,
    addend: Addend | None,
) -> torch.Tensor:
    """Return the bound of a truncating accumulator: one that starts at the addend, or to which it is added at last."""
    roundings = more + local.split_roundings
    moved = _moved(local, multiply, *operands, inner, _power(roundings, local.u_acc))
    blocks = functools.partial(block_error, local, accumulator, multiply, operands, inner)
    own = (moved + blocks((mid.abs() + moved) * INFLATE)) * INFLATE
    if addend is None:
        return own
    size = addend.mid.abs() + addend.bound_or_zero()
    off = addend.bound_or_zero() + size * _power(addend.roundings + local.split_roundings, local.u_acc)
    whole = (mid + addend.mid).abs() + moved + off
    after = own + off + (whole + own) * local.u_acc
    before = moved + off + blocks(whole * INFLATE, (size + off).expand(mid.shape))
    return torch.maximum(after, before) * INFLATE


def _moved(
    local: Local, multiply: Callable[..., torch.Tensor], a: Enclosure, b: Enclosure, inner: int, slope: float
) -> torch.Tensor:
    """Return how far the bounds of the operands, and a relative error of each product, move the exact sum."""
    if slope == 0 and a.bound is None and b.bound is None:
        return a.mid.new_zeros(())
    return _weighted(local, multiply, a, b, inner, slope)


def _weighted(
    local: Local, multiply: Callable[..., torch.Tensor], a: Enclosure, b: Enclosure, inner: int, slope: float
) -> torch.Tensor:
    """Return |a| B + A (|b| + B) + slope (|a| + A)(|b| + B)."""

    def part(x: Weight, y: Weight, factor: float = 1.0) -> torch.Tensor:
        return nonnegative_product(multiply, x, y, local.arithmetic.copies, factor, inner)

    if a.bound is None and b.bound is None:
        return part(Weight(a.mid), Weight(b.mid), slope)
    if a.bound is None:
        return part(Weight(a.mid), Weight(b.mid, b.bound, slope, 1 + slope))
    bound = part(Weight(a.mid, a.bound, slope, 1 + slope), Weight(b.mid, b.bound))
    return bound if b.bound is None else bound.add_(part(Weight(a.mid), Weight(None, b.bound))).mul_(INFLATE)
