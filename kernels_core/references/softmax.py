"""Softmax and its logarithm, in float32 or wider, with one rounding of the result."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def softmax(input: Tensor, dim: int = -1) -> Tensor:
    """Return exp(x_i) / sum_j exp(x_j) along `dim`.

    An element of -inf gives 0; where all are -inf the result is NaN, as in PyTorch.
    """
    return torch.softmax(wide(input), dim).to(input.dtype)


def log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    """Return x_i - log sum_j exp(x_j) along `dim`; where all are -inf the result is NaN, as in PyTorch."""
    return torch.log_softmax(wide(input), dim).to(input.dtype)


ENTRIES = {
    "softmax": Reference(softmax, "softmax"),
    "log_softmax": Reference(log_softmax, "log_softmax"),
}
