"""Maximum and minimum over dimensions: nothing is rounded, a bound is carried through, an index may be unsure.

With m = max a_i and bounds A_i,  |max a'_i - m| <= max_i (A_i - (m - a_i)):  upwards max (a_i + A_i) - m is just this,
and downwards the value at the maximum falls by at most its own bound, which is one of the terms. The minimum is the
same for -a. Convex in A and 0 at 0.

An index is certain where the largest upper end of the other elements lies below the lower end of the chosen one. At an
exact tie of certain values PyTorch's choice is the convention; the run at kinks leaves it unsure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import normal_dims, reduction_cone
from kernels_core.rules.extremum_weights import REACH
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.special_groups import classed


def extremum(a: Enclosure, mid: torch.Tensor, dims: tuple[int, ...], keepdim: bool, sign: int) -> Enclosure:
    """Return the enclosure of a maximum (sign 1) or minimum (sign -1) whose float64 value is `mid`."""
    if not a.floating:
        unsure = None if a.unsure is None else _reduce(a.unsure, dims, keepdim, torch.any)
        return Enclosure(mid, None, unsure)
    if a.bound is None:
        return Enclosure(mid)
    whole = mid if keepdim else _unsqueezed(mid, dims)
    distance = (whole - a.mid) * sign
    room = a.bound * INFLATE - torch.where(a.mid == whole, 0.0, distance)
    return classed(Enclosure(mid, room.amax(dims, keepdim=keepdim) if a.mid.dim() else room), a, dims, keepdim)


def _unsqueezed(value: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    for dim in sorted(dims):
        value = value.unsqueeze(dim)
    return value


def _reduce(value: torch.Tensor, dims: tuple[int, ...], keepdim: bool, function: Any) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        value = function(value, dim, keepdim)
    return value


def unsure_index(local: Local, a: Enclosure, index: torch.Tensor, dim: int, sign: int) -> torch.Tensor | None:
    """Return True where roundings (or, at kinks, an exact tie) could change the index of an extremum (dim kept)."""
    if not a.floating or not a.mid.dim() or a.mid.shape[dim] < 2:
        return None
    upper = a.mid * sign if a.bound is None else (a.mid * sign).add_(a.bound * REACH)
    largest: torch.Tensor = torch.topk(upper, 2, dim).values
    first, second = largest.narrow(dim, 0, 1), largest.narrow(dim, 1, 1)
    own = (a.mid * sign).gather(dim, index)
    room = torch.zeros_like(own) if a.bound is None else a.bound.expand(a.shape).gather(dim, index) * REACH
    near = ~(second < own - room)
    exact = (first == own) & (second == own) & (room == 0)  # not where another reaches above the chosen one
    if a.bound is not None:  # the other one may be uncertain
        exact &= (upper == second).sum(dim, keepdim=True) == ((upper == second) & (a.bound == 0)).sum(dim, keepdim=True)
    local.arithmetic.ties += int(exact.sum())
    near &= ~own.isnan()
    if a.bound is not None:  # where nothing is known of one, each may be the extremum
        near |= a.bound.expand(a.shape).isinf().any(dim, keepdim=True)
    return near if local.kinks else near & ~exact


def _dims_form(sign: int) -> Any:
    """amax, amin."""

    def bound(local: Local, a: Enclosure, dim: Any = None, keepdim: bool = False, **_: Any) -> Enclosure:
        dims = normal_dims(dim, a.mid.dim())
        function = torch.amax if sign > 0 else torch.amin
        return extremum(a, function(a.mid, dims, keepdim=keepdim) if dims else a.mid.clone(), dims, keepdim, sign)

    return bound


def _whole_form(sign: int) -> Any:
    """max.default, min.default."""

    def bound(local: Local, a: Enclosure) -> Enclosure:
        mid = a.mid.max() if sign > 0 else a.mid.min()
        return extremum(a, mid, tuple(range(a.mid.dim())), False, sign)

    return bound


def _dim_form(sign: int) -> Any:
    """max.dim, min.dim: value and index."""

    def bound(local: Local, a: Enclosure, dim: int, keepdim: bool = False) -> tuple[Enclosure, Enclosure]:
        mid, index = (torch.max if sign > 0 else torch.min)(a.mid, dim, keepdim=True)
        dims = normal_dims(dim, a.mid.dim())
        unsure = unsure_index(local, a, index, dims[0] if dims else 0, sign)
        value = extremum(a, mid, dims, True, sign)
        if keepdim or not dims:
            return value, Enclosure(index, None, unsure)
        return _squeezed(value, dims[0]), _squeezed(Enclosure(index, None, unsure), dims[0])

    return bound


def _squeezed(value: Enclosure, dim: int) -> Enclosure:
    bound, unsure = (None if t is None else t.squeeze(dim) for t in (value.bound, value.unsure))
    return Enclosure(value.mid.squeeze(dim), bound, unsure)


def _index_form(sign: int) -> Any:
    """argmax, argmin."""

    def bound(local: Local, a: Enclosure, dim: int | None = None, keepdim: bool = False) -> Enclosure:
        value = a
        if dim is None:
            value, dim = (
                Enclosure(a.mid.reshape(-1), None if a.bound is None else a.bound.expand(a.shape).reshape(-1)),
                0,
            )
        index = (torch.argmax if sign > 0 else torch.argmin)(value.mid, dim, keepdim=True)
        found = Enclosure(index, None, unsure_index(local, value, index, dim, sign))
        shape = local.shape
        return Enclosure(found.mid.reshape(shape), None, None if found.unsure is None else found.unsure.reshape(shape))

    return bound


def _aminmax(
    local: Local, a: Enclosure, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Enclosure, Enclosure]:
    return _dims_form(-1)(local, a, dim, keepdim), _dims_form(1)(local, a, dim, keepdim)


# The exact values -----------------------------------------------------------------------------------------------------


def _group_cone(call: Any) -> list[np.ndarray]:
    meta = call.step.operand_metas[0]
    return [reduction_cone(normal_dims(call.step.argument(1, "dim"), len(meta.shape)), meta, call.index)]


def _aminmax_cone(call: Any) -> list[np.ndarray]:
    meta = call.step.operand_metas[0]
    return [reduction_cone(normal_dims(call.step.kwargs.get("dim"), len(meta.shape)), meta, call.index)]


def _folded(call: Any, values: Any, sign: int) -> Any:
    choose = call.numbers.maximum if sign > 0 else call.numbers.minimum
    found = values[:, 0]
    for k in range(1, values.shape[1]):
        found = call.numbers.each(choose, found, values[:, k])
    return found


def _extremum_exact(sign: int) -> Any:
    def exact(call: Any, values: Any) -> Any:
        return _first(call, values, sign) if call.output == 1 else _folded(call, values, sign)

    return exact


def _first(call: Any, values: Any, sign: int) -> Any:
    """Return the index of the first extremum in each group."""
    less = call.numbers.less

    def first(row: Any) -> int:
        best = 0
        for k in range(1, len(row)):
            if less(row[best], row[k]) if sign > 0 else less(row[k], row[best]):
                best = k
        return best

    return np.array([first(row) for row in values], dtype=object)


def _tiles(step: Any) -> int:
    rank = len(step.operand_metas[0].shape)
    return min(normal_dims(step.argument(1, "dim"), rank), default=0)


def _rules(name: str, sign: int) -> tuple[Rule, ...]:
    exact, index = _extremum_exact(sign), lambda call, values: _first(call, values, sign)
    return (
        Rule(f"aten.a{name}.default", _dims_form(sign), _group_cone, exact, _tiles, aligned="left", classed=True),
        Rule(f"prims.a{name}.default", _dims_form(sign), _group_cone, exact, _tiles, aligned="left", classed=True),
        Rule(f"aten.{name}.default", _whole_form(sign), _group_cone, exact, classed=True),
        Rule(f"aten.{name}.dim", _dim_form(sign), _group_cone, exact, _tiles, aligned="left", classed=True),
        Rule(f"aten.arg{name}.default", _index_form(sign), _group_cone, index, classed=True),
    )


FAMILY = Family()
FAMILY.add(
    *_rules("max", 1),
    *_rules("min", -1),
    Rule("aten.aminmax.default", _aminmax, _aminmax_cone,
         lambda call, values: _folded(call, values, 1 if call.output else -1), classed=True),
)  # fmt: skip
