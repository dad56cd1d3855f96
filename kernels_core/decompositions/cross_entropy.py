"""Cross entropies in the form whose derivative kernels compute."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from kernels_core.decompositions.compute_format import wide


def binary_cross_entropy_with_logits(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """(p t + 1 - t) log(1 + e^x) - p t x, whose derivative (p t + 1 - t) sigmoid(x) - p t is the form that kernels use.

    The form that PyTorch's decomposition differentiates has another, more accurate cancellation near sigmoid(x) = t.
    """
    x, t = wide(input), wide(target)
    positive = t if pos_weight is None else wide(pos_weight) * t
    loss = torch.logaddexp(x, torch.zeros_like(x))
    loss = (loss if pos_weight is None else (positive + 1 - t) * loss) - positive * x
    loss = loss if weight is None else loss * wide(weight)
    if size_average is not None or reduce is not None:
        reduction = F._Reduction.legacy_get_string(size_average, reduce, emit_warning=False)  # type: ignore[attr-defined]
    loss = loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
    return loss.to(input.dtype)


def linear_cross_entropy(*args: Any, options: Any = None, **kwargs: Any) -> torch.Tensor:
    """The loss without chunks: `options` say how a kernel goes about it, not what it computes."""
    return F.linear_cross_entropy(*args, **kwargs)
