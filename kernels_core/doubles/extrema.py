"""Extrema over dimensions and sorting, by ATen's names."""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.doubles.arithmetic import divide, negate, subtract
from kernels_core.doubles.number import DoubleDouble, exactly, unknown
from kernels_core.doubles.order import absolute, largest, unordered
from kernels_core.doubles.record import Call, Evaluation, Truth
from kernels_core.doubles.reductions import Dims, kept, whole
from kernels_core.rules.cones import normal_dims

Tensor = torch.Tensor


def _largest(a: Any, dims: Dims, keepdim: bool, sign: int) -> DoubleDouble:
    x = whole(a)
    if not dims:
        return x
    return largest(x, dims, keepdim=keepdim) if sign > 0 else negate(largest(negate(x), dims, keepdim=keepdim))


def extremum(sign: int) -> Evaluation:
    """Return the evaluation of a maximum (1) or minimum (-1) over dimensions."""

    def evaluate(call: Call, a: Any, dims: Any = (), keepdim: bool = False) -> DoubleDouble:
        return _largest(a, normal_dims(dims, a.mid.dim()), keepdim, sign)

    return evaluate


def extremum_and_index(sign: int) -> Evaluation:
    """Return the evaluation of a maximum or minimum over one dimension, with its index."""

    def evaluate(call: Call, a: Any, dim: int, keepdim: bool = False) -> list[DoubleDouble | Truth]:
        dims = normal_dims(dim, a.mid.dim())
        value = _largest(a, dims, True, sign)
        x = whole(a)
        gap = absolute(subtract(x, value))
        near = ~(gap.hi > gap.rad * (1 + 2.0**-40))
        exact = ~near | ((x.rad == 0) & (x.lo == 0) & (value.lo == 0))
        doubt = (near.sum(dims, keepdim=True) > 1) & ~exact.all(dims[0], keepdim=True) if dims else near & ~near
        doubt = doubt if keepdim or not dims else doubt.squeeze(dims)
        return [kept(value, dims, keepdim), Truth(call.values[1].mid, doubt)]

    return evaluate


def extremum_weight(call: Call, a: Any, *, dims: Dims, sign: int) -> DoubleDouble:
    """Return 1 / k for the k elements that are the extremum, where it is certain which these are, and 0 for others."""
    x = whole(a)
    value = _largest(a, dims, True, sign)
    gap = absolute(subtract(x, value))
    near = ~(gap.hi > gap.rad * (1 + 2.0**-40))
    same = (gap.hi == 0) & (x.rad + value.rad == 0)
    count = near.sum(dims, keepdim=True).to(torch.float64) if dims else near.to(torch.float64)
    contested = near & ~same
    if dims:
        contested = contested.to(torch.float64).amax(dims, keepdim=True) > 0
    found = divide(exactly(near.to(torch.float64)), exactly(count))
    return unknown(found, ((count != 1) & contested).expand(found.shape) | value.hi.isnan())


def sort(
    call: Call, a: Any, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> list[DoubleDouble | Truth]:
    """Return values in order, and their places: certain where every neighbour in the row is in order for certain.

    Else order statistics move by at most the largest radius of the row, and float64, which sorts by the high parts, may
    have two low parts the wrong way round.
    """
    place, x = call.values[1].mid, whole(a)
    if not place.dim() or not place.shape[dim]:
        return [x, Truth(place, None)]
    found = x.each(lambda part: part.gather(dim, place))
    first, second = (found.narrow(dim, start, place.shape[dim] - 1) for start in (0, 1))
    close = unordered(first, second) | ((first.hi == second.hi) & (first.lo != second.lo))
    open_ = (close.sum(dim, keepdim=True) > 0).expand(place.shape)
    moved = found.rad.amax(dim, keepdim=True) + found.hi.abs() * 2.0**-52
    return [DoubleDouble(found.hi, found.lo, torch.where(open_, moved, found.rad)), Truth(place, open_)]


EVALUATIONS: dict[str, Evaluation] = {
    "aten.amax.default": extremum(1),
    "aten.amin.default": extremum(-1),
    "prims.amax.default": extremum(1),
    "prims.amin.default": extremum(-1),
    "exactref.extremum_weight": extremum_weight,
    "aten.sort.default": sort,
    "aten.sort.stable": sort,
    "aten.max.dim": extremum_and_index(1),
    "aten.min.dim": extremum_and_index(-1),
}
