"""Numbers of any format as PyTorch compares them."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def comparable(tensor: Tensor) -> Tensor:
    """Return the numbers in a format that PyTorch compares: all but the 8-bit ones are."""
    return tensor if tensor.dtype.itemsize > 1 else tensor.to(torch.float32)


def finite_range(tensor: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the smallest and the largest finite number, None where there is none."""
    if not tensor.numel():
        return None
    numbers = comparable(tensor)
    low, high = numbers.aminmax()
    if not bool(low.isfinite() & high.isfinite()):
        numbers = numbers[numbers.isfinite()]
        if not numbers.numel():
            return None
        low, high = numbers.aminmax()
    return low, high
