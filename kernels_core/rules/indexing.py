"""Reading at places and writing to places: gather, index, embedding, scatter, index_put and their kin.

Reading only moves values. Where an index depends on roundings, what is read there lies somewhere along the dimension.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import moved, moved_exact
from kernels_core.rules.movement import require_traced_shape, transported
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.scatter import Plan, Scatter, ids

Tensor = torch.Tensor


def _read(*indices: int, scalar: int | None = None) -> Any:
    """Return the bound of an operation that reads at the places in the arguments `indices`."""

    def bound(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
        value = transported(local, args, kwargs, indices, scalar)
        found = [
            v for k in indices if k < len(args) for v in (args[k] if isinstance(args[k], (list, tuple)) else [args[k]])
        ]
        unsure = [v.unsure for v in found if isinstance(v, Enclosure) and v.unsure is not None]
        if not any(bool(u.any()) for u in unsure):
            return value  # type: ignore[no-any-return]
        require_traced_shape(local, value)
        return _hidden(value, local.step.name, args, unsure)

    return bound


def _hidden(value: Enclosure, name: str, args: Any, unsure: list[Tensor]) -> Enclosure:
    """Return the enclosure where places are unsure: along the dimension for gather, unknown otherwise."""
    if name != "aten.gather.default" or not value.floating:
        doubt = _doubt(name, args, unsure[0]).expand(value.shape)
        if value.floating:
            return Enclosure(value.mid, torch.where(doubt, torch.inf, value.bound_or_zero()))
        return Enclosure(value.mid, None, doubt if value.unsure is None else doubt | value.unsure)
    source, dim, index = args[:3]
    b = source.bound_or_zero()
    box = tuple(slice(None) if d == dim % max(1, index.mid.dim()) else slice(n) for d, n in enumerate(index.shape))
    high = (source.mid + b)[box].amax(dim, keepdim=True) if index.mid.dim() else source.mid + b
    low = (source.mid - b)[box].amin(dim, keepdim=True) if index.mid.dim() else source.mid - b
    reach = torch.maximum(high - value.mid, value.mid - low) * INFLATE
    return Enclosure(
        value.mid, torch.where(unsure[0], torch.where(reach.isnan(), torch.inf, reach), value.bound_or_zero())
    )


def _doubt(name: str, args: Any, unsure: Tensor) -> Tensor:
    """Return which elements are read at an unsure place: all of them, where it is not one index of integers."""
    everywhere = unsure.new_ones(())
    if name == "aten.gather.default":
        return unsure.expand(args[2].shape)
    if name == "aten.embedding.default":
        source, dim, index = args[0], 0, args[1]
    elif name == "aten.index_select.default" and args[0].mid.dim() and args[2].mid.dim():
        source, dim, index = args[0], args[1] % args[0].mid.dim(), args[2]
    elif name in ("aten.index.Tensor", "aten._unsafe_index.Tensor"):
        given = [(dim, index) for dim, index in enumerate(args[1]) if isinstance(index, Enclosure)]
        if len(given) > 1 or given[0][1].mid.dtype is torch.bool:
            return everywhere
        source, (dim, index) = args[0], given[0]
    else:
        return everywhere
    behind = len(source.shape) - dim - 1
    return unsure.expand(index.shape).reshape(*index.shape, *(1 for _ in range(behind)))


def _strides(shape: Any) -> list[int]:
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def _scatter_plan(base: Tensor, dim: int, index: Tensor, source: Any = None, *_: Any, result: Any, **__: Any) -> Plan:
    """Element i of `index` writes to its own coordinates, with index[i] for that along `dim`."""
    if not index.numel():
        none = index.reshape(-1)
        return Plan(none, none if isinstance(source, Tensor) else None)
    base, index = torch.atleast_1d(base), torch.atleast_1d(index)
    result = tuple(base.shape)
    source = torch.atleast_1d(source) if isinstance(source, Tensor) else source
    dim = dim % base.dim()
    stride = _strides(result)[dim]
    lines = ids(base) - torch.arange(result[dim], device=base.device).mul(stride).reshape(
        [-1 if d == dim else 1 for d in range(base.dim())]
    )
    own = (
        lines.select(dim, 0)
        .unsqueeze(dim)[tuple(slice(0, n) if d != dim else slice(None) for d, n in enumerate(index.shape))]
        .expand(index.shape)
    )
    sources = source[tuple(slice(0, n) for n in index.shape)].reshape(-1) if isinstance(source, Tensor) else None
    return Plan((own + index * stride).reshape(-1), sources, None, (lines, own.reshape(-1)))


def _index_plan(base: Tensor, dim: int, index: Tensor, source: Any, *_: Any, result: Any, **__: Any) -> Plan:
    """Slice i of the source goes to slice index[i] of the result."""
    places = ids(base)
    if not base.dim():
        return Plan(index.reshape(-1) * 0, source.reshape(-1) if isinstance(source, Tensor) else None)
    targets = places.index_select(dim, index.reshape(-1))
    return Plan(targets.reshape(-1), source.reshape(targets.shape).reshape(-1) if isinstance(source, Tensor) else None)


def _index_put_plan(base: Tensor, indices: Any, values: Tensor, *_: Any, result: Any, **__: Any) -> Plan:
    targets = torch.ops.aten.index.Tensor(ids(base), indices)
    return Plan(targets.reshape(-1), values.expand(targets.shape).reshape(-1))


def _put_plan(base: Tensor, index: Tensor, source: Tensor, *_: Any, result: Any, **__: Any) -> Plan:
    flat = index.reshape(-1)
    return Plan(torch.where(flat < 0, flat + base.numel(), flat), source.reshape(-1))


def _embedding_plan(grad: Tensor, indices: Tensor, rows: int, padding: int, scale: bool, *, result: Any) -> Plan:
    width = math.prod(result[1:])
    flat = indices.reshape(-1)
    targets = torch.where(
        (flat == padding)[:, None], -1, flat[:, None] * width + torch.arange(width, device=flat.device)
    )
    divisors = None
    if scale:
        counts = torch.bincount(flat, minlength=rows)
        divisors = counts[flat][:, None].expand(targets.shape).reshape(-1)
    return Plan(targets.reshape(-1), grad.reshape(-1), divisors)


def _unfold_plan(grad: Tensor, sizes: Any, dim: int, size: int, step: int, *, result: Any) -> Plan:
    places = torch.arange(math.prod(result), device=grad.device).reshape(result)
    return Plan(places.unfold(dim, size, step).reshape(-1), grad.reshape(-1))


def _border_plan(forward: Any) -> Any:
    """Return the plan of a padding's backward: the padding itself says where each element came from."""

    def plan(grad: Tensor, given: Tensor, padding: Any, *, result: Any) -> Plan:
        return Plan(forward(ids(given).to(torch.float64), padding).to(torch.int64).reshape(-1), grad.reshape(-1))

    return plan


def _col2im_plan(
    columns: Tensor, output_size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any, *, result: Any
) -> Plan:
    places = torch.arange(1, math.prod(result) + 1, dtype=torch.float64, device=columns.device).reshape(result)
    return Plan(
        aten.im2col(places, kernel, dilation, padding, stride).to(torch.int64).reshape(-1) - 1, columns.reshape(-1)
    )


def _always(reduction: str, include: bool = True) -> Any:
    return lambda args, kwargs: (reduction, include)


def _accumulate(position: int) -> Any:
    return lambda args, kwargs: (
        "sum" if (args[position] if len(args) > position else kwargs.get("accumulate", False)) else "",
        True,
    )


_NAMES = {
    "add": "sum",
    "multiply": "prod",
    "sum": "sum",
    "prod": "prod",
    "mean": "mean",
    "amax": "amax",
    "amin": "amin",
}


def _named(args: Any, kwargs: Any) -> tuple[str, bool]:
    """Return the reduction that the operation is given by name."""
    name = kwargs.get("reduce") or args[4]
    return _NAMES[name], bool(kwargs.get("include_self", args[5] if len(args) > 5 else True))


def _reading(name: str, *indices: int, tiles: Any = None, scalar: int | None = None) -> Rule:
    flags = {} if tiles is None else {"tiles": tiles, "aligned": "left"}
    cone = functools.partial(moved, indices=indices, scalar=scalar)
    return Rule(
        f"aten.{name}",
        _read(*indices, scalar=scalar),
        cone,
        moved_exact if scalar is None else _filled_exact(scalar),
        **flags,
    )


def _filled_exact(scalar: int) -> Any:
    def exact(call: Any, *operands: Any) -> Any:
        return moved_exact(call, *operands, fill=call.step.args[scalar])

    return exact


def _writing(name: str, plan: Any, base: int | None, source: int, index: tuple[int, ...], reduce: Any) -> Rule:
    return Scatter(plan, base, source, index, reduce).rule(name)


aten = torch.ops.aten
FAMILY = Family()
FAMILY.add(
    _reading("gather.default", 2), _reading("index.Tensor", 1), _reading("_unsafe_index.Tensor", 1),
    _reading("index_select.default", 2), _reading("embedding.default", 1), _reading("take.default", 1),
    _reading("masked_scatter.default", 1), _reading("masked_scatter_backward.default", 1),
    _reading("index_fill.int_Scalar", 2, scalar=3), _reading("index_fill.int_Tensor", 2),
    _writing("scatter.src", _scatter_plan, 0, 3, (2,), _always("")),
    _writing("scatter.value", _scatter_plan, 0, 3, (2,), _always("")),
    _writing("scatter.reduce", _scatter_plan, 0, 3, (2,), _named),
    _writing("scatter.value_reduce", _scatter_plan, 0, 3, (2,), _named),
    _writing("scatter_add.default", _scatter_plan, 0, 3, (2,), _always("sum")),
    _writing("scatter_reduce.two", _scatter_plan, 0, 3, (2,), _named),
    _writing("index_add.default", _index_plan, 0, 3, (2,), _always("sum")),
    _writing("index_copy.default", _index_plan, 0, 3, (2,), _always("")),
    _writing("index_reduce.default", _index_plan, 0, 3, (2,), _named),
    _writing("index_put.default", _index_put_plan, 0, 2, (1,), _accumulate(3)),
    _writing("_unsafe_index_put.default", _index_put_plan, 0, 2, (1,), _accumulate(3)),
    _writing("put.default", _put_plan, 0, 2, (1,), _accumulate(3)),
    _writing("embedding_dense_backward.default", _embedding_plan, None, 0, (1,), _always("sum")),
    _writing("col2im.default", _col2im_plan, None, 0, (), _always("sum")),
    _writing("unfold_backward.default", _unfold_plan, None, 0, (), _always("sum")),
    _writing("reflection_pad1d_backward.default", _border_plan(aten.reflection_pad1d), None, 0, (), _always("sum")),
    _writing("reflection_pad2d_backward.default", _border_plan(aten.reflection_pad2d), None, 0, (), _always("sum")),
    _writing("reflection_pad3d_backward.default", _border_plan(aten.reflection_pad3d), None, 0, (), _always("sum")),
    _writing("replication_pad1d_backward.default", _border_plan(aten.replication_pad1d), None, 0, (), _always("sum")),
    _writing("replication_pad2d_backward.default", _border_plan(aten.replication_pad2d), None, 0, (), _always("sum")),
    _writing("replication_pad3d_backward.default", _border_plan(aten.replication_pad3d), None, 0, (), _always("sum")),
)  # fmt: skip
