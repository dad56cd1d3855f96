"""The format that an operation computes in: 16-bit and 8-bit operations compute in float32 and round once."""

from __future__ import annotations

import torch


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in its compute format: float32 for 16 bit and narrower, else unchanged."""
    return tensor.float() if tensor.is_floating_point() and tensor.dtype.itemsize < 4 else tensor
