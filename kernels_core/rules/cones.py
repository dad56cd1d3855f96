"""Cones that many rules share: which elements of the operands the requested elements of a result need.

Every function takes a Call and returns one int64 array per tensor operand, its first axis running over the requested
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kernels_core.program import Meta, replace_refs

if TYPE_CHECKING:
    from kernels_core.exact import Call

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
    groups = ids.transpose([*kept, *dims]).reshape(int(np.prod([meta.shape[d] for d in kept], dtype=np.int64)), -1)
    return groups[result_index]


def normal_dims(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return dimensions as a sorted tuple of non-negative numbers; None or empty means all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    chosen = [dims] if isinstance(dims, int) else list(dims)
    return tuple(sorted({d % rank if rank else 0 for d in chosen})) if rank else ()


def moved(call: Call, fill: int = -1) -> list[np.ndarray]:
    """For operations that only move values: run the same operation on ids; one array (n,) per operand, -1 elsewhere.

    Each operand's elements are numbered apart, so the id that arrives says which operand it came from. Integer
    operands (indices) keep their values and get an empty cone.
    """
    sources = moved_ids(call, fill)
    arrays, start = [], 0
    for meta in call.step.operand_metas:
        if not _is_moved(call, meta):
            arrays.append(np.full((len(call.index), 0), -1, dtype=np.int64))
            continue
        inside = (sources >= start) & (sources < start + meta.numel)
        arrays.append(np.where(inside, sources - start, -1))
        start += meta.numel
    return arrays


def _is_moved(call: Call, meta: Meta) -> bool:
    """Return True for operands whose values arrive in the result: those of the result's kind."""
    return meta.dtype.is_floating_point == call.meta.dtype.is_floating_point or not call.meta.dtype.is_floating_point


def moved_ids(call: Call, fill: int = -1) -> np.ndarray:
    """Return the ids that arrive at the requested elements."""
    start, ids = 0, []
    for position, meta in enumerate(call.step.operand_metas):
        if _is_moved(call, meta):
            ids.append(torch.arange(start, start + meta.numel).reshape(meta.shape))
            start += meta.numel
        else:
            ids.append(torch.from_numpy(call.integer(position)).reshape(meta.shape))
    found = iter(ids)
    args, kwargs = replace_refs((call.step.args, dict(call.step.kwargs)), lambda _: next(found))
    kwargs = {k: v for k, v in kwargs.items() if k not in ("dtype", "device", "layout", "pin_memory", "memory_format")}
    result = call.step.op(*args, **kwargs)  # type: ignore[misc]
    result = result[call.output] if isinstance(result, (tuple, list)) else result
    return result.reshape(-1).numpy()[call.index]


def moved_exact(call: Call, *operands: Objects) -> Objects:
    """Return the value that was moved to each requested element."""
    result = np.empty(len(call.index), dtype=object)
    for cone, values in zip(call.indices, operands, strict=True):
        if cone.ndim == 1:
            here = cone >= 0
            result[here] = values[here]
    return result


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
