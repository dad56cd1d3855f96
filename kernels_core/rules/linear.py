"""Matrix products, with or without a summand: beta s + alpha (a @ b).

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
from typing import Any, NamedTuple

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.profiles.blocks import BlockAccumulator
from kernels_core.rules.block_products import accumulator_of, block_error
from kernels_core.rules.cones import broadcast_index
from kernels_core.rules.integers import whole_integers
from kernels_core.rules.matmul_inputs import as_read
from kernels_core.rules.nonnegative import Weight, nonnegative_product
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.sequential import after_sum, of_product
from kernels_core.rules.special_products import classed_product

Number = int | float


class Addend(NamedTuple):
    """A term that is added to a sum of products: value, bound (None where exact), and roundings before it is added."""

    mid: torch.Tensor
    bound: torch.Tensor | None
    roundings: float = 0.0

    def bound_or_zero(self) -> torch.Tensor:
        """Return the bound as a tensor."""
        return self.mid.new_zeros(()) if self.bound is None else self.bound


def product(local: Local, a: Enclosure, b: Enclosure, more: float = 0.0) -> Enclosure:
    """Return the enclosure of a @ b in the accumulator, before it is stored; `more` roundings on each term's path."""
    multiply = torch.mm if a.mid.dim() == 2 else torch.bmm
    mid, a, b = multiply(a.mid, b.mid), as_read(local, a), as_read(local, b)
    bound = product_bound(local, multiply, a, b, a.mid.shape[-1], more, mid)
    value = Enclosure(mid, bound)
    return value if all_finite(bound) else classed_product(a, b, value)


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


def affine(
    local: Local, summand: Enclosure | None, a: Enclosure, b: Enclosure, beta: Number, alpha: Number, more: float = 0.0
) -> Enclosure:
    """Return beta summand + alpha (a @ b) in the accumulator; a summand with beta = 0 is not read (as in PyTorch)."""
    more += local.sum_rounding * (alpha != 1)
    if summand is None or beta == 0 or alpha == 0:
        value = _scaled(local, product(local, a, b, more), alpha)
        return value if summand is None or beta == 0 else _with_summand_alone(local, summand, beta, value)
    multiply = torch.mm if a.mid.dim() == 2 else torch.bmm
    mid, a, b = multiply(a.mid, b.mid), as_read(local, a), as_read(local, b)
    scale = abs(beta) / abs(alpha)
    addend = Addend(summand.mid * (beta / alpha), None if summand.bound is None else summand.bound * scale,
                    local.sum_rounding * ((beta != 1) + (alpha != 1)))  # fmt: skip
    bound = product_bound(local, multiply, a, b, a.mid.shape[-1], more, mid, addend) * (abs(alpha) * INFLATE)
    bound = bound.add_(2 * local.eta_sum)
    total = summand.mid * beta + mid * alpha
    if all_finite(bound) and all_finite(total):
        return Enclosure(total, bound)
    own = product_bound(local, multiply, a, b, a.mid.shape[-1], more, mid)
    value = _scaled(local, classed_product(a, b, Enclosure(mid, own)), alpha)
    return _classed_sum(summand, beta, value, summand.mid * beta + value.mid, bound)


def _with_summand_alone(local: Local, summand: Enclosure, beta: Number, value: Enclosure) -> Enclosure:
    """Add beta summand to a product that alpha = 0 has made zero."""
    slope = relative_error(2, local.u_sum, float(beta != 1))  # loaded, multiplied and added
    own = summand.mid.abs() * (abs(beta) * slope) + summand.bound_or_zero() * (abs(beta) * (1 + slope))
    mid = summand.mid * beta + value.mid
    bound = (own + value.bound_or_zero() + 2 * local.eta_sum) * INFLATE
    finite = all_finite(bound) and all_finite(mid)
    return Enclosure(mid, bound) if finite else _classed_sum(summand, beta, value, mid, bound)


def _scaled(local: Local, value: Enclosure, alpha: Number) -> Enclosure:
    if alpha == 1:
        return value
    bound = value.bound_or_zero() * (abs(alpha) * INFLATE) + local.eta_sum
    bound = torch.where(value.mid.isfinite(), bound, value.bound_or_zero())
    return Enclosure(value.mid * alpha, bound)


def _classed_sum(
    summand: Enclosure, beta: Number, value: Enclosure, mid: torch.Tensor, bound: torch.Tensor
) -> Enclosure:
    """An infinity or NaN is certain where one term is certainly so and the other bounded, or certainly so too."""
    scaled = summand.mid * beta
    own = summand.bound_or_zero()
    sure = [(~x.isfinite() & (e == 0)) for x, e in ((scaled, own), (value.mid, value.bound_or_zero()))]
    bounded = [x.isfinite() & e.isfinite() for x, e in ((scaled, own), (value.mid, value.bound_or_zero()))]
    certain = (sure[0] & (bounded[1] | sure[1])) | (sure[1] & bounded[0])
    certain = certain | (sure[0] & scaled.isnan()) | (sure[1] & value.mid.isnan())
    bound = torch.where(certain, 0.0, torch.where(mid.isfinite() & ~bound.isnan(), bound, torch.inf))
    return Enclosure(torch.where(certain | mid.isfinite(), mid, torch.nan), bound)


Shape = Callable[[Enclosure, Enclosure], tuple[Enclosure, Enclosure]]


def _reshaped(value: Enclosure, change: Callable[[torch.Tensor], torch.Tensor]) -> Enclosure:
    bound = None if value.bound is None else change(value.bound.expand(value.shape))
    return Enclosure(change(value.mid), bound)


def _as_given(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return a, b


def _matrix_vector(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return a, _reshaped(b, lambda t: t.unsqueeze(-1))


def _vectors(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return _reshaped(a, lambda t: t.unsqueeze(0)), _reshaped(b, lambda t: t.unsqueeze(-1))


def _outer(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return _reshaped(a, lambda t: t.unsqueeze(-1)), _reshaped(b, lambda t: t.unsqueeze(0))


def _joined_batches(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return _reshaped(a, lambda t: t.transpose(0, 1).flatten(1)), _reshaped(b, lambda t: t.flatten(0, 1))


def _plain(shape: Shape) -> Any:
    def bound(local: Local, a: Enclosure, b: Enclosure) -> Enclosure:
        if not a.floating:
            return whole_integers(local, a, b)
        return _shaped(local, affine(local, None, *shape(a, b), 0, 1))

    return bound


def _with_summand(shape: Shape) -> Any:
    def bound(
        local: Local, summand: Enclosure, a: Enclosure, b: Enclosure, *, beta: Number = 1, alpha: Number = 1
    ) -> Enclosure:
        if not a.floating:
            return whole_integers(local, summand, a, b, beta=beta, alpha=alpha)
        if shape is _matrix_vector and summand.mid.dim():
            summand = _reshaped(summand, lambda t: t.unsqueeze(-1))
        return _shaped(local, affine(local, summand, *shape(a, b), beta, alpha, _narrow_roundings(local, shape, a)))

    return bound


def _narrow_roundings(local: Local, shape: Shape, a: Enclosure) -> float:
    """Return how often PyTorch rounds to a 16-bit result on the way, in units of u_acc.

    addbmm adds batch after batch to its result; addr multiplies alpha, the vectors and beta in 16-bit steps.
    """
    if local.dtype is local.compute or shape not in (_joined_batches, _outer):
        return 0.0
    return (a.shape[0] if shape is _joined_batches else 2) * local.u / local.u_acc


def _shaped(local: Local, value: Enclosure) -> Enclosure:
    return local.stored(_reshaped(value, lambda t: t.reshape(local.step.shape)))


def _matrix_cone(call: Any) -> list[np.ndarray]:
    """Row of the first, column of the second: (n, K) each; a vector is a matrix of one row or column."""
    first, second = call.step.operand_metas[-2:]
    *_, rows, inner = first.shape
    columns = second.shape[-1] if len(second.shape) > 1 else 1
    index, column = np.divmod(call.index, columns)
    batch, row = np.divmod(index, rows)
    k = np.arange(inner)
    a = (batch * rows + row)[:, None] * inner + k
    b = (batch[:, None] * inner + k) * columns + column[:, None]
    return [*_summand_cone(call), a, b]


def _dot_cone(call: Any) -> list[np.ndarray]:
    k = np.broadcast_to(
        np.arange(call.step.operand_metas[0].numel), (len(call.index), call.step.operand_metas[0].numel)
    )
    return [k, k]


def _outer_cone(call: Any) -> list[np.ndarray]:
    row, column = np.divmod(call.index, call.step.operand_metas[-1].numel)
    return [*_summand_cone(call), row[:, None], column[:, None]]


def _joined_cone(call: Any) -> list[np.ndarray]:
    batches, rows, inner = call.step.operand_metas[-2].shape
    columns = call.step.operand_metas[-1].shape[-1]
    row, column = np.divmod(call.index, columns)
    batch, k = (part.reshape(-1) for part in np.indices((batches, inner)))
    a = (batch * rows + row[:, None]) * inner + k
    b = (batch * inner + k) * columns + column[:, None]
    return [*_summand_cone(call), a, b]


def _summand_cone(call: Any) -> list[np.ndarray]:
    if len(call.step.operand_metas) == 2:
        return []
    if call.step.kwargs.get("beta", 1) == 0:
        return [np.full(len(call.index), -1, dtype=np.int64)]
    return [broadcast_index(call.step.operand_metas[0], call.meta, call.index)]


def inner_products(call: Any, a: Any, b: Any) -> Any:
    """Return the exact inner products along the second axis."""
    zero = call.numbers.real(0) if call.meta.dtype.is_floating_point else 0
    return np.add.reduce(a * b, axis=1, initial=zero) if a.shape[1] else np.full(a.shape[0], zero, dtype=object)


def _affine_exact(call: Any, summand: Any, a: Any, b: Any) -> Any:
    beta, alpha = (call.numbers.of(call.step.kwargs.get(name, 1)) for name in ("beta", "alpha"))
    value = inner_products(call, a, b) * alpha
    return value if call.step.kwargs.get("beta", 1) == 0 else value + summand * beta


FAMILY = Family()
FAMILY.add(
    Rule("aten.mm.default", _plain(_as_given), _matrix_cone, inner_products, classed=True),
    Rule("aten.bmm.default", _plain(_as_given), _matrix_cone, inner_products, classed=True),
    Rule("aten.mv.default", _plain(_matrix_vector), _matrix_cone, inner_products, classed=True),
    Rule("aten.dot.default", _plain(_vectors), _dot_cone, inner_products, classed=True),
    Rule("aten.vdot.default", _plain(_vectors), _dot_cone, inner_products, classed=True),
    Rule("aten.ger.default", _plain(_outer), _outer_cone, inner_products, classed=True),
    Rule("aten.addmm.default", _with_summand(_as_given), _matrix_cone, _affine_exact, classed=True),
    Rule("aten.baddbmm.default", _with_summand(_as_given), _matrix_cone, _affine_exact, classed=True),
    Rule("aten.addmv.default", _with_summand(_matrix_vector), _matrix_cone, _affine_exact, classed=True),
    Rule("aten.addr.default", _with_summand(_outer), _outer_cone, _affine_exact, classed=True),
    Rule("aten.addbmm.default", _with_summand(_joined_batches), _joined_cone, _affine_exact, classed=True),
)
