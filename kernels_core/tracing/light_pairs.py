"""ComplexTensors made without operations: a tracer would record each of them, and evaluate it.

PyTorch asks at every construction whether the parts' memory is pinned, and detaches them. Nothing that is traced has
pinned memory or a graph of its own: a traced program's inputs are detached before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.complex_tensor._core import ComplexTensor

from kernels_core.tracing.complex_parts import COMPLEX

Tensor = torch.Tensor


@contextlib.contextmanager
def light_pairs() -> Iterator[None]:
    """Let ComplexTensors be constructed without operations."""
    before = ComplexTensor.__new__
    setattr(ComplexTensor, "__new__", _pair)  # noqa: B010 (mypy takes no assignment here)
    try:
        yield
    finally:
        setattr(ComplexTensor, "__new__", before)  # noqa: B010


def _pair(cls: type[ComplexTensor], real: Tensor, imag: Tensor, /) -> Any:
    real, imag = real.contiguous(), imag.contiguous()
    pair = Tensor._make_wrapper_subclass(
        cls,
        real.shape,
        strides=real.stride(),
        storage_offset=real.storage_offset(),
        dtype=COMPLEX[real.dtype],
        layout=real.layout,
        device=real.device,
        requires_grad=False,
    )
    pair._re, pair._im = real, imag
    return pair
