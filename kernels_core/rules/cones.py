"""Cones that many rules share: which elements of the operands the requested elements of a result need.

Every function takes a Call and returns one int64 array per tensor operand, its first axis running over the requested
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from kernels_core.program import Meta, Ref, Step, replace_refs
from kernels_core.rules.record import Rule

if TYPE_CHECKING:
    from kernels_core.exact.tier import Call

Objects = Any


def broadcast_cone(call: Call) -> list[np.ndarray]:
    """Each operand at the index that broadcasts to the requested one: shape (n,)."""
    return [broadcast_index(meta, call.meta, call.index) for meta in call.step.operand_metas]


def broadcast_index(operand: Meta, result: Meta, index: np.ndarray) -> np.ndarray:
    """Return the flat indices of an operand that broadcast to flat indices of the result."""
    if operand.shape == result.shape:
        return index
    coordinates = np.unravel_index(index, result.shape) if result.shape else ()
    shift = len(result.shape) - len(operand.shape)
    flat = np.zeros(len(index), dtype=np.int64)
    for dim, size in enumerate(operand.shape):
        flat = flat * size + (coordinates[dim + shift] if size != 1 else 0)
    return flat


def reduction_cone(dims: Sequence[int], meta: Meta, result_index: np.ndarray) -> np.ndarray:
    """Return (n, g): for each element of the reduced result (any keepdim), the flat indices of its group.

    Args:
        dims: reduced dimensions of the operand, normalised to >= 0.
        meta: of the operand.
        result_index: flat indices of the result.
    """
    kept = [d for d in range(len(meta.shape)) if d not in dims]
    ids = np.arange(meta.numel, dtype=np.int64).reshape(meta.shape)
    sizes = [int(np.prod([meta.shape[d] for d in part], dtype=np.int64)) for part in (kept, dims)]
    groups: np.ndarray = ids.transpose([*kept, *dims]).reshape(sizes)[result_index]
    return groups


def normal_dims(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return dimensions as a sorted tuple of non-negative numbers; None or empty means all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    chosen = [dims] if isinstance(dims, int) else list(dims)
    return tuple(sorted({d % rank if rank else 0 for d in chosen})) if rank else ()


def operand_arguments(step: Step) -> list[int | str]:
    """Return, for each tensor operand, the position or name of the argument that holds it."""
    owners: list[int | str] = []
    arguments: list[tuple[int | str, Any]] = [*enumerate(step.args), *step.kwargs.items()]
    for key, value in arguments:
        leaves = pytree.tree_leaves(value, is_leaf=lambda x: isinstance(x, Ref))
        owners += [key] * sum(isinstance(leaf, Ref) for leaf in leaves)
    return owners


def functional(step: Step) -> Callable[..., Any]:
    """Return the operation of a step; for one that reshapes its operand in place, that without side effects."""
    return _WITHOUT_SIDE_EFFECTS.get(str(step.op), step.op)  # type: ignore[return-value]


_WITHOUT_SIDE_EFFECTS: dict[str, Callable[..., Any]] = {
    "aten.squeeze_.dim": torch.ops.aten.squeeze.dim,
    "aten.squeeze_.default": torch.ops.aten.squeeze.default,
    "aten.squeeze_.dims": torch.ops.aten.squeeze.dims,
    "aten.unsqueeze_.default": torch.ops.aten.unsqueeze.default,
    "aten.transpose_.default": torch.ops.aten.transpose.int,
    "aten.t_.default": torch.ops.aten.t.default,
}


def moved(call: Call, indices: Sequence[int | str] = (), scalar: int | None = None) -> list[np.ndarray]:
    """For operations that only move values: run the same operation on ids; one array (n,) per operand, -1 elsewhere.

    Each operand's elements are numbered apart, so the id that arrives says which operand it came from.

    Args:
        call: the request.
        indices: the arguments that hold indices or masks; they keep their values and get an empty cone.
        scalar: position of an argument with a number that the operation fills in.
    """
    sources = moved_ids(call, indices, scalar)
    arrays, start = [], 1
    for owner, meta in zip(operand_arguments(call.step), call.step.operand_metas, strict=True):
        if owner in indices:
            arrays.append(np.full((len(call.index), 0), -1, dtype=np.int64))
            continue
        inside = (sources >= start) & (sources < start + meta.numel)
        arrays.append(np.where(inside, sources - start, -1))
        start += meta.numel
    return arrays


def moved_ids(call: Call, indices: Sequence[int | str] = (), scalar: int | None = None) -> np.ndarray:
    """Return the ids, from 1, that arrive at the requested elements; 0 where the operation fills in."""
    start, ids = 1, []
    for position, (owner, meta) in enumerate(zip(operand_arguments(call.step), call.step.operand_metas, strict=True)):
        if owner in indices:
            ids.append(torch.from_numpy(call.integer(position)).reshape(meta.shape))
            continue
        # float64 holds every id, and every operation takes it
        ids.append(torch.arange(start, start + meta.numel, dtype=torch.float64).reshape(meta.shape))
        start += meta.numel
    found = iter(ids)
    args, kwargs = replace_refs((call.step.args, dict(call.step.kwargs)), lambda _: next(found))
    args = [0 if position == scalar else arg for position, arg in enumerate(args)]
    kwargs = {k: v for k, v in kwargs.items() if k not in ("dtype", "device", "layout", "pin_memory", "memory_format")}
    result = functional(call.step)(*args, **kwargs)
    result = result[call.output] if isinstance(result, (tuple, list)) else result
    return result.reshape(-1).numpy()[call.index].astype(np.int64)  # type: ignore[no-any-return]


def moved_exact(call: Call, *operands: Objects, fill: float = 0) -> Objects:
    """Return the value that was moved to each requested element, `fill` where none was."""
    n, floating = call.numbers, call.meta.dtype.is_floating_point
    result = np.empty(len(call.index), dtype=object)
    result[:] = [n.real(n.of(fill)) if floating else fill] * len(call.index)
    for cone, values in zip(call.indices, operands, strict=True):
        if cone.ndim == 1:
            here = cone >= 0
            result[here] = n.each(n.real, values[here]) if floating and here.any() else values[here]
    return result


def integer_value(call: Call, *_: Objects) -> Objects:
    """Return the values of an integer result, which the filter has computed."""
    found = call.integers[Ref(call.step.number, call.output)].mid
    return found.cpu().reshape(-1).numpy()[call.index].astype(object)


def elementwise_exact(function: Callable[..., Any]) -> Callable[..., Objects]:
    """Turn `function(numbers, *args, **kwargs)` on object arrays and exact scalars into a rule's exact part."""

    def exact(call: Call, *operands: Objects) -> Objects:
        found = iter(operands)
        args, kwargs = replace_refs((call.step.args, dict(call.step.kwargs)), lambda _: next(found))
        args = [call.numbers.of(a) if isinstance(a, float) else a for a in args]
        kwargs = {k: call.numbers.of(a) if isinstance(a, float) else a for k, a in kwargs.items()}
        value = function(call.numbers, *args, **kwargs)
        return np.broadcast_to(np.asarray(value, dtype=object), call.index.shape)

    return exact


def elementwise_tiles(step: Any) -> int:
    """Elementwise rules act independently along every dimension of their result."""
    return len(step.shape)


def elementwise(name: str, bound: Callable[..., Any], exact: Callable[..., Any], **flags: Any) -> Rule:
    """Return the rule of an elementwise operation of ATen."""
    return Rule(f"aten.{name}", bound, broadcast_cone, elementwise_exact(exact), elementwise_tiles, **flags)
