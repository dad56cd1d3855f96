"""Quantisation: q = clamp(round(x / scale) + zero_point, low, high), and back, x' = (q - zero_point) scale.

Rounding is to nearest, ties to even. Where x / scale lies within its rounding error of a tie, both neighbours are
legal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def dequantize(input: Tensor, scale: Tensor, zero_point: Tensor | int = 0) -> Tensor:
    """Return (q - zero_point) scale in the dtype of the scale.

    Args:
        input: q, whole numbers.
        scale: broadcast to the input: one number, or one per channel, row or group.
        zero_point: the whole number that stands for 0, one or as many as there are scales.
    """
    return ((input.to(torch.float32) - zero_point) * wide(scale)).to(scale.dtype)


def fake_quantize(input: Tensor, scale: Tensor, zero_point: int = 0, low: int = -128, high: int = 127) -> Tensor:
    """Return the input quantised and dequantised, in its own dtype.

    Args:
        input: of any floating dtype.
        scale: broadcast to the input.
        zero_point: the whole number that stands for 0.
        low: smallest whole number.
        high: largest whole number.
    """
    q = torch.clamp(torch.round(wide(input) / wide(scale)) + zero_point, low, high)
    return ((q - zero_point) * wide(scale)).to(input.dtype)


def straight_through(inputs: Sequence[Any], outputs: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients that quantisation-aware training takes: the input's passes where nothing was clamped.

    That of the scale is zero: it is taken for a constant.
    """
    input, scale, zero_point, low, high = inputs
    q = torch.round(wide(input) / wide(scale)) + zero_point
    kept = wide(grads[0]).masked_fill((q < low) | (q > high), 0.0)
    return kept.to(input.dtype), torch.zeros_like(scale)


ENTRIES = {
    "dequantize": Reference(dequantize, "dequantize"),
    "fake_quantize": Reference(fake_quantize, "fake_quantize", declared=straight_through, surrogate=True),
}
