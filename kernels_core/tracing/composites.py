"""Composite operations that must be taken apart before differentiation.

PyTorch's CPU kernels for layer, group and batch norm save mean and 1/std for the backward; in 16 bit these are rounded
to 16 bit, and a gradient traced through them would grant that rounding to every kernel. Fused attention saves a
logsumexp. Here such calls are replaced, while the reference is traced, by plain float32 arithmetic with one rounding
at the end. The real-number meaning is the same.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from kernels_core.decompositions.activations import mish
from kernels_core.decompositions.attention import scaled_dot_product_attention
from kernels_core.decompositions.compute_format import wide
from kernels_core.decompositions.cross_entropy import binary_cross_entropy_with_logits, linear_cross_entropy
from kernels_core.decompositions.losses import CTC
from kernels_core.decompositions.normalization import (
    batch_norm,
    functional_batch_norm,
    functional_instance_norm,
    group_norm,
    instance_norm,
    layer_norm,
    renorm,
    rms_norm,
)
from kernels_core.decompositions.sampling import SAMPLERS
from kernels_core.decompositions.segments import SEGMENTS
from kernels_core.errors import TraceError
from kernels_core.rewrites.determinant import DETERMINANTS
from kernels_core.tracing.lines import last_node, user_lines
from kernels_core.tracing.standin import python_of_operator

__all__ = ["COMPOSITES", "composites_first", "wide"]


def _as_list(tensor: torch.Tensor) -> Any:
    """Return `tolist()` of integers, one by one: PyTorch's own reads memory that traced tensors do not have."""
    if tensor.dim():
        return [_as_list(row) for row in tensor.unbind()]
    return tensor.item()


def _as_array(tensor: torch.Tensor, *_: Any, **__: Any) -> np.ndarray:
    return np.array(_as_list(tensor), dtype=str(tensor.dtype)[6:]).reshape(tensor.shape)


def _tensor_split(input: torch.Tensor, split: Any, dim: int = 0) -> Any:
    return torch.tensor_split(input, _as_list(split) if isinstance(split, torch.Tensor) else split, dim)


# A function of torch.nn.functional is intercepted as a whole: what it calls inside is not (but see below).
COMPOSITES: Mapping[Any, Callable[..., Any]] = {
    F.binary_cross_entropy_with_logits: binary_cross_entropy_with_logits,
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.group_norm: group_norm,
    F.batch_norm: functional_batch_norm,
    F.instance_norm: functional_instance_norm,
    torch.layer_norm: layer_norm,
    torch.rms_norm: rms_norm,
    torch.group_norm: group_norm,
    torch.batch_norm: batch_norm,
    torch.instance_norm: instance_norm,
    torch.renorm: renorm,
    torch.Tensor.renorm: renorm,
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    F.linear_cross_entropy: linear_cross_entropy,
    **CTC,
    **DETERMINANTS,
    **SAMPLERS,
    **SEGMENTS,
    torch.Tensor.tolist: _as_list,
    torch.Tensor.numpy: _as_array,
    torch.Tensor.__array__: _as_array,
    torch.tensor_split: _tensor_split,
    torch.Tensor.tensor_split: _tensor_split,
}

# Functions that PyTorch differentiates by another formula again than once, with roundings of its own in 16 bit, which
# kernels of later orders are granted: these are taken apart in the first order alone.
FIRST_ORDER: Mapping[Any, Callable[..., Any]] = {F.mish: mish}
_LATER_ORDER = contextvars.ContextVar("_LATER_ORDER", default=False)


@contextlib.contextmanager
def later_order() -> Iterator[None]:
    """Within this, tangents and gradients of gradients are traced."""
    token = _LATER_ORDER.set(True)
    try:
        yield
    finally:
        _LATER_ORDER.reset(token)


# What takes a floating value out of the program. Its rounded value would become an exact constant of the reference.
_LEAVES_PYTORCH = frozenset({
    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__float__, torch.Tensor.__array__,
    torch.Tensor.__int__,
})  # fmt: skip


def _refuse_leaving(func: Any, args: Any) -> None:
    if func not in _LEAVES_PYTORCH or not args or not isinstance(args[0], torch.Tensor):
        return
    if args[0].is_floating_point() or args[0].is_complex():
        raise TraceError(
            f"the reference takes a floating value out of PyTorch (.{func.__name__}{_at(next(user_lines(), ''))})\n"
            "keep it a tensor; for a Triton, C++ or numpy kernel name a reference"
        )


def _at(line: str) -> str:
    return f" at {line}" if line else ""


class composites_first(TorchFunctionMode):  # noqa: N801  (used like a function: with composites_first(): ...)
    """Within this, the calls listed above run as plain arithmetic; `sources` gets the line behind each graph node."""

    def __init__(self, sources: dict[str, str] | None = None, *, callers: bool = False) -> None:
        """Record "file:line" by node name into `sources`; with `callers` of each user frame, innermost first."""
        super().__init__()
        self.sources, self.callers = sources if sources is not None else {}, callers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the call where it is one of ours; refuse one that leaves PyTorch with a floating value."""
        _refuse_leaving(func, args)
        before = last_node()
        try:
            return _replacement(func)(*args, **(kwargs or {}))
        finally:
            self._record(before)

    def _record(self, before: Any) -> None:
        node, source = last_node(), ""
        while node is not None and node is not before and node.op != "root":
            source = source or ("\n".join(user_lines()) if self.callers else next(user_lines(), ""))
            self.sources.setdefault(node.name, source)
            node = node.prev


def _multi_head_attention(*args: Any, **kwargs: Any) -> Any:
    """Return PyTorch's, whose fused attention inside, that of `nn.TransformerEncoderLayer`, is taken apart."""
    with mock.patch.object(F, "scaled_dot_product_attention", scaled_dot_product_attention):
        return F.multi_head_attention_forward(*args, **kwargs)


def _replacement(func: Any) -> Callable[..., Any]:
    if func is F.multi_head_attention_forward:
        return _multi_head_attention
    if isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return python_of_operator(func) or func
    first = func if _LATER_ORDER.get() else FIRST_ORDER.get(func, func)
    return COMPOSITES.get(func, first)
