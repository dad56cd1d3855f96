"""Sums and means over dimensions.

    |s' - s| <= sum X_i + (n - 1) u_sum sum (|x_i| + X_i)      any order of summation; other orders: growth.py

Source: Jeannerod and Rump, Improved error bounds for inner products in floating-point arithmetic, SIMAX 34 (2013),
proposition 3.1 for recursive summation; every order has at most n - 1 additions on the path of each term, and the same
induction holds for any tree. A mean adds one division.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import normal_dims, reduction_cone
from kernels_core.rules.operands import is_integral, parts
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.sequential import of_sum, ordered_dim


def summed(local: Local, a: Any, dims: tuple[int, ...], keepdim: bool, n: int | None = None) -> Enclosure:
    """Return the enclosure of a sum in the accumulator, before it is stored; of part of a sum of `n` terms if given."""
    mid, bound = parts(a)
    n = math.prod(mid.shape[d] for d in dims) if n is None else n
    total = _sum(mid, dims, keepdim)
    magnitude = local.magnitude(mid) if bound is None else local.magnitude(mid).add_(bound)
    size = _sum(magnitude, dims, keepdim)
    error = size * local.sum_error(n, total.numel())
    if (dim := ordered_dim(local, mid.shape, dims)) is not None:
        sharper = of_sum(local, mid, bound, dim, magnitude.sum(dim, keepdim=True))
        error = torch.minimum(error, sharper.reshape(error.shape))
    if bound is not None:
        error = error.add_(_sum(bound, dims, keepdim))
    if lost := local.sum_underflow(n):
        error = error.add_(lost)
    error = error.mul_(INFLATE * (1 + n * 2.0**-52))
    return Enclosure(total, error) if all_finite(error) else _classed(mid, bound, dims, keepdim, total, error)


def _classed(
    mid: torch.Tensor,
    bound: torch.Tensor | None,
    dims: tuple[int, ...],
    keepdim: bool,
    total: torch.Tensor,
    error: torch.Tensor,
) -> Enclosure:
    """Give sums with infinite or NaN terms their class: certain where these terms are exact and the others bounded."""
    loose = torch.zeros_like(mid) if bound is None else (~bound.isfinite() | (~mid.isfinite() & (bound != 0))).to(mid)
    special = _sum((~mid.isfinite()).to(mid), dims, keepdim) > 0
    certain = special & ~total.isfinite() & (_sum(loose, dims, keepdim) == 0)
    error = torch.where(certain, 0.0, torch.where(error.isnan(), torch.inf, error))
    return Enclosure(torch.where(certain | total.isfinite(), total, torch.nan), error)


def _sum(value: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    return value.sum(dims, keepdim=keepdim) if dims else value.clone()


def sum_dims(
    local: Local, a: Enclosure, dims: Any = None, keepdim: bool = False, *, dtype: Any = None, output_dtype: Any = None
) -> Enclosure:
    """Sum over dimensions."""
    if is_integral(local):
        return _integers(local, a, normal_dims(dims, a.mid.dim()), keepdim)
    return local.stored(summed(local, a, normal_dims(dims, a.mid.dim()), keepdim))


def _integers(local: Local, a: Enclosure, dims: tuple[int, ...], keepdim: bool) -> Enclosure:
    mid = a.mid.sum(dims, keepdim=keepdim, dtype=local.nominal) if dims else a.mid.to(local.nominal)
    if a.unsure is None:
        return Enclosure(mid)
    return Enclosure(mid, None, _sum(a.unsure.expand(a.shape).to(torch.int64), dims, keepdim) > 0)


def mean_dims(local: Local, a: Enclosure, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Enclosure:
    """Mean over dimensions: a sum and a division, or a multiplication by the rounded 1/n: 2 u |mean|.

    These 2 u are granted for powers of two as well, where nothing is rounded: a norm may be computed as a x - a m
    (PyTorch's group norm, and its layer norm's gradient of the weight), which errs by u a (|x| + |m|) <= u a (2 |m| +
    |x - m|) before its last rounding where a (x - m) errs by u a |x - m|.
    """
    dims = normal_dims(dims, a.mid.dim())
    return _divided(local, summed(local, a, dims, keepdim), math.prod(a.mid.shape[d] for d in dims))


def _divided(local: Local, value: Enclosure, n: int) -> Enclosure:
    mid = value.mid / n
    bound = value.bound_or_zero() / n if n else torch.full_like(mid, 0.0)
    bound = bound.mul_((1 + 2 * local.u_acc) * INFLATE).add_(mid.abs(), alpha=2 * local.u_acc * INFLATE)
    bound.add_(local.eta_acc)
    if not all_finite(bound):
        bound = torch.where(mid.isfinite(), bound, value.bound_or_zero())
    return local.stored(Enclosure(mid, bound))


def _terms(step: Any) -> int:
    """Return how many terms each sum of the step has."""
    shape = step.operand_metas[0].shape
    return math.prod(shape[d] for d in normal_dims(step.argument(1, "dim"), len(shape)))


def sum_part(local: Local, a: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Enclosure:
    """Return the part of one tile of the leading dimensions: the bound is linear in the terms but for their number."""
    return summed(local, a, normal_dims(dims, a.mid.dim()), keepdim, _terms(local.step))


def _mean_finish(local: Local, total: Enclosure) -> Enclosure:
    return _divided(local, total, _terms(local.step))


def sum_tiles(step: Any) -> int:
    """Independent along the leading dimensions in front of the first reduced one."""
    rank = len(step.operand_metas[0].shape)
    dims = normal_dims(step.argument(1, "dim"), rank)
    return min(dims) if dims else rank


def _cone(call: Any) -> list[np.ndarray]:
    meta = call.step.operand_metas[0]
    return [reduction_cone(normal_dims(call.step.argument(1, "dim"), len(meta.shape)), meta, call.index)]


def add_up(call: Any, values: Any) -> Any:
    """Return the exact sum over the second axis."""
    zero = call.numbers.real(0) if call.meta.dtype.is_floating_point else 0
    return (
        np.add.reduce(values, axis=1, initial=zero) if values.shape[1] else np.full(values.shape[0], zero, dtype=object)
    )


def _mean_exact(call: Any, values: Any) -> Any:
    return call.numbers.divide(add_up(call, values), values.shape[1])


_SUM: dict[str, Any] = {"partial": sum_part, "finish": Local.stored}
_MEAN: dict[str, Any] = {"partial": sum_part, "finish": _mean_finish}

FAMILY = Family()
FAMILY.add(
    Rule("aten.sum.default", sum_dims, _cone, add_up, **_SUM),
    Rule("aten.sum.dim_IntList", sum_dims, _cone, add_up, sum_tiles, aligned="left", **_SUM),
    Rule("prims.sum.default", sum_dims, _cone, add_up, sum_tiles, aligned="left", **_SUM),
    Rule("aten.mean.default", mean_dims, _cone, _mean_exact, **_MEAN),
    Rule("aten.mean.dim", mean_dims, _cone, _mean_exact, sum_tiles, aligned="left", **_MEAN),
)
