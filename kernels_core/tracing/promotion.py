"""Casts that PyTorch makes inside an elementwise operation, of operands without dimensions beside others.

Such an operand does not widen the dtype in which the operation computes: a float32 scalar beside a bfloat16 tensor is
rounded to bfloat16 on the way, or is not (a factor on the CPU). A cast in its place grants the rounding.

Source: PyTorch documentation, torch.result_type; ATen/native/TensorIterator.cpp.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

aten = torch.ops.aten
_FILLS = (aten.fill.Tensor, aten.masked_fill.Tensor, aten.index_fill.int_Tensor)  # compute in the dtype of the first


class Operand(Protocol):
    """What is known of a tensor: itself, or its shape and dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def dtype(self) -> torch.dtype:
        """Format."""


def common_dtype(op: Any, operands: Iterable[Operand]) -> torch.dtype | None:
    """Return the floating dtype to which PyTorch casts operands without dimensions, None where it casts none."""
    if op in _FILLS:
        shaped = list(operands)[:1]
    elif isinstance(op, torch._ops.OpOverload) and torch.Tag.pointwise in op.tags:
        shaped = [operand for operand in operands if len(operand.shape)]
    else:
        return None
    dtypes = [operand.dtype for operand in shaped if operand.dtype.is_floating_point]
    return functools.reduce(torch.promote_types, dtypes) if dtypes else None


def is_cast(operand: Operand, common: torch.dtype) -> bool:
    """Return True for an operand without dimensions that the dtype cannot hold."""
    narrow = operand.dtype.is_floating_point and torch.promote_types(operand.dtype, common) != common
    return narrow and not len(operand.shape)


def with_casts(op: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Return the decomposition of an operation, which casts as PyTorch's own kernel does."""
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.pointwise not in op.tags:
        return decomposition

    @functools.wraps(decomposition)
    def casting(*args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        common = common_dtype(op, tensors)
        if common is None or not any(is_cast(tensor, common) for tensor in tensors):
            return decomposition(*args, **kwargs)
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda t: t.to(common) if is_cast(t, common) else t, (args, kwargs)
        )
        return decomposition(*args, **kwargs)

    return casting
