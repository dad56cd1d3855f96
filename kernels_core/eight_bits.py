"""8-bit floats by way of float32, which holds each of them: PyTorch moves and compares few of them as they are."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def widened(tensor: Tensor) -> Tensor:
    """Return an 8-bit floating tensor in float32, any other as it is."""
    return tensor.to(torch.float32) if tensor.is_floating_point() and tensor.dtype.itemsize == 1 else tensor


def equal(first: Tensor, second: Tensor) -> bool:
    """Return `torch.equal` of tensors of any dtype; those of different dtypes are different."""
    return first.dtype == second.dtype and torch.equal(widened(first), widened(second))
