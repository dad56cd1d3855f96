"""Casts that PyTorch makes inside an elementwise operation, of operands without dimensions and of integers.

Neither widens the dtype in which the operation computes: a float32 scalar or an int64 tensor beside a bfloat16 tensor
is rounded to bfloat16 on the way, or is not (a factor on the CPU). A cast in its place grants the rounding. Integers
beside float32 are the rules' own concern, which read them in the compute format.

Source: PyTorch documentation, torch.result_type; ATen/native/TensorIterator.cpp.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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


def casts(op: Any, operands: Sequence[Operand]) -> list[torch.dtype | None]:
    """Return the floating dtype to which PyTorch casts each operand, None where it casts none that matters."""
    common = _common_dtype(op, operands)
    if common is None:
        return [None] * len(operands)
    integers = common.itemsize < 4 and op not in _FILLS
    return [common if _may_round(operand, common, integers) else None for operand in operands]


def _common_dtype(op: Any, operands: Sequence[Operand]) -> torch.dtype | None:
    if op in _FILLS:
        shaped = list(operands[:1])
    elif isinstance(op, torch._ops.OpOverload) and torch.Tag.pointwise in op.tags:
        shaped = [operand for operand in operands if len(operand.shape)]
    else:
        return None
    dtypes = [operand.dtype for operand in shaped if operand.dtype.is_floating_point]
    return functools.reduce(torch.promote_types, dtypes) if dtypes else None


def _may_round(operand: Operand, common: torch.dtype, integers: bool) -> bool:
    if operand.dtype.is_floating_point:
        return not len(operand.shape) and torch.promote_types(operand.dtype, common) != common
    return integers and not operand.dtype.is_complex and operand.dtype is not torch.bool


def with_casts(op: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Return the decomposition of an operation, which casts as PyTorch's own kernel does."""
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.pointwise not in op.tags:
        return decomposition

    @functools.wraps(decomposition)
    def casting(*args: Any, **kwargs: Any) -> Any:
        leaves, form = pytree.tree_flatten((args, kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        for place, dtype in zip(places, casts(op, [leaves[place] for place in places]), strict=True):
            leaves[place] = leaves[place] if dtype is None else leaves[place].to(dtype)
        args, kwargs = pytree.tree_unflatten(leaves, form)
        return decomposition(*args, **kwargs)

    return casting
