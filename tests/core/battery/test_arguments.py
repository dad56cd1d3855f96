"""Words and indices that stand for nothing: what no random value and no default shows."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.nn import functional

from kernels_core.report import Outcome
from tests.core.battery.planted import require_caught, require_left_alone, seeded


class _Loss(Function):
    """Half the squares, reduced as asked for."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.reduction = reduction
        return half_squares(x, reduction)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x / (x.numel() if ctx.reduction == "mean" else 1), None


class _AlwaysTheMean(_Loss):
    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x / x.numel(), None


def half_squares(x: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    value = 0.5 * x * x
    return {"mean": torch.mean, "sum": torch.sum, "none": torch.clone}[reduction](value)


def test_a_reduction_is_tried_in_each_of_its_words() -> None:
    require_caught(_AlwaysTheMean, "arguments", {"x": seeded(5, 3)}, "reduction=sum", reference=half_squares)
    row = require_left_alone(_Loss, "arguments", {"x": seeded(5, 3)}, reference=half_squares)
    assert row.evidence == "reduction=sum, reduction=none"


def test_a_word_that_somebody_chose_keeps_its_meaning_and_the_row_says_so() -> None:
    given = {"x": seeded(5, 3), "reduction": "sum"}
    row = require_left_alone(_Loss, "arguments", given, Outcome.NOTED, reference=half_squares)
    assert row.evidence == "not varied: reduction"


def embedded(index: torch.Tensor, table: torch.Tensor, padding_idx: int = 2) -> torch.Tensor:
    return functional.embedding(index, table, padding_idx)


class _Embedding(Function):
    @staticmethod
    def forward(ctx: Any, index: torch.Tensor, table: torch.Tensor, padding_idx: int = 2) -> torch.Tensor:
        ctx.save_for_backward(index)
        ctx.rows, ctx.padding_idx = len(table), padding_idx
        return table[index]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (index,) = ctx.saved_tensors
        keep = index != ctx.padding_idx
        found = grad.new_zeros(ctx.rows, grad.shape[-1]).index_add_(0, index[keep], grad[keep])
        return None, found, None


class _PaddingLearns(_Embedding):
    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (index,) = ctx.saved_tensors
        return None, grad.new_zeros(ctx.rows, grad.shape[-1]).index_add_(0, index, grad), None


def test_the_row_for_padding_learns_nothing() -> None:
    inputs = {"index": torch.tensor([0, 1, 3, 4]), "table": seeded(5, 3)}
    options = {"reference": embedded, "free": ("index", "table")}
    require_caught(_PaddingLearns, "ignored_indices", inputs, "index with padding_idx 2", **options)
    require_left_alone(_Embedding, "ignored_indices", inputs, **options)


def scaled(x: torch.Tensor, scale: float | None = None, window: int | None = None) -> torch.Tensor:
    return x * (x.shape[-1] ** -0.5 if scale is None else scale)


class _Scaled(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float | None = None, window: int | None = None) -> torch.Tensor:
        ctx.scale = x.shape[-1] ** -0.5 if scale is None else scale
        return x * ctx.scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * ctx.scale, None, None


class _ItsOwnScaleBackward(_Scaled):
    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * grad.shape[-1] ** -0.5, None, None


def test_a_scale_of_none_is_tried_as_a_number_and_what_none_may_mean_else_is_said() -> None:
    inputs = {"x": seeded(5, 3)}
    require_caught(
        _ItsOwnScaleBackward, "arguments", inputs, "scale=0.5: 15 of 15 elements of grad_x", reference=scaled
    )
    row = require_left_alone(_Scaled, "arguments", inputs, reference=scaled)
    assert row.evidence == "scale=0.5; not varied: window"


def windowed(x: torch.Tensor, window: int | None = None) -> torch.Tensor:
    return 2 * x


def test_none_alone_is_noted_as_not_varied() -> None:
    row = require_left_alone(
        windowed, "arguments", {"x": seeded(3)}, Outcome.NOTED, reference=lambda x, window=None: 2 * x
    )
    assert row.evidence == "not varied: window"
