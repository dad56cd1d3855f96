"""Softmax, its logarithm and the cross entropy, in float32 or wider, with one rounding of the result."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels_core.composites import wide


def softmax(input: Tensor, dim: int = -1) -> Tensor:
    """Return exp(x_i) / sum_j exp(x_j) along `dim`.

    An element of -inf gives 0; where all are -inf the result is NaN, as in PyTorch.
    """
    return torch.softmax(wide(input), dim).to(input.dtype)


def log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    """Return x_i - log sum_j exp(x_j) along `dim`; where all are -inf the result is NaN, as in PyTorch."""
    return torch.log_softmax(wide(input), dim).to(input.dtype)


def cross_entropy(input: Tensor, target: Tensor, reduction: str = "mean", ignore_index: int = -100) -> Tensor:
    """Return -log_softmax(input)[target], reduced over the rows.

    Args:
        input: logits, [N, C] (or as `torch.nn.functional.cross_entropy` takes them).
        target: class indices, int64, [N]; rows with `ignore_index` count neither in the sum nor in the mean.
        reduction: "mean", "sum" or "none". The mean over no rows is NaN.
        ignore_index: the target that marks a row as absent.
    """
    loss = F.cross_entropy(wide(input), target, reduction=reduction, ignore_index=ignore_index)
    return loss.to(input.dtype)
