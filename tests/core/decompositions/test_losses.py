"""Losses with a backward kernel of their own: eager kernels covered, errors caught, impossible alignments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import exactref as er
from tests.core.rules.checker import check_rule, check_special

TARGETS = torch.tensor([[1, 2, 2], [3, 1, 0]])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin_loss_covers_eager_kernels(p: int, reduction: str) -> None:
    torch.manual_seed(0)
    target, weight = torch.tensor([0, 2, 1, 3]), torch.rand(4)
    check_rule(
        lambda x: F.multi_margin_loss(x, target, p, 0.7, weight, reduction=reduction),
        [torch.randn(4, 4)],
        [torch.float32],
        caught=0.8,
    )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_multilabel_margin_loss_covers_eager_kernels(reduction: str) -> None:
    torch.manual_seed(1)
    target = torch.tensor([[1, 3, -1, 2], [-1, 0, 1, 2], [0, 1, 2, 3]])
    check_rule(lambda x: F.multilabel_margin_loss(x, target, reduction=reduction), [torch.randn(3, 4)], [torch.float32])


@pytest.mark.parametrize("lengths", [[6, 5], torch.tensor([6, 5])])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc_loss_covers_eager_kernels(lengths: object, flat: bool) -> None:
    torch.manual_seed(2)
    counts = torch.tensor([3, 2]) if isinstance(lengths, torch.Tensor) else [3, 2]
    targets = torch.tensor([1, 2, 2, 3, 1]) if flat else TARGETS
    check_rule(
        lambda x: F.ctc_loss(x.log_softmax(2), targets, lengths, counts, reduction="none"),  # type: ignore[arg-type]
        [torch.randn(6, 2, 4)],
        [torch.float32],
        exact=False,
        planted_ulp=8192,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", [F.ctc_loss, torch.nn.CTCLoss, torch.ctc_loss])
def test_ctc_loss_of_lists_of_lengths_is_a_reference(loss: Any, reduction: str) -> None:
    """PyTorch makes a tensor of the lengths for its mean, from a list, where no trace can follow it."""
    x = torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(4))
    given = (TARGETS, (6, 5), [3, 2])

    def function(x: torch.Tensor) -> Any:
        y = x.log_softmax(2)
        if loss is torch.nn.CTCLoss:
            return loss(reduction=reduction)(y, *given)
        return loss(y, *given, reduction=reduction if loss is F.ctc_loss else ("mean", "sum").index(reduction) + 1)

    assert er.check(function, [x], reference=function).verdict == er.Verdict.COVERED


@pytest.mark.parametrize("zero", [False, True])
def test_ctc_loss_of_a_target_that_does_not_fit_is_decided(zero: bool) -> None:
    torch.manual_seed(3)
    check_special(
        lambda x: F.ctc_loss(x, TARGETS, [2, 6], [3, 2], reduction="none", zero_infinity=zero),
        [torch.randn(6, 2, 4).log_softmax(2)],
        decided=0.9,
    )


def test_linear_cross_entropy_is_the_same_with_and_without_chunks() -> None:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    torch.manual_seed(4)
    options, target = (
        LinearCrossEntropyOptions(batch_chunk_size=2, allow_retain_graph=True),
        torch.tensor([1, 0, 3, 2, 1]),
    )
    check_rule(
        lambda x, w: F.linear_cross_entropy(x, w, target, options=options),
        [torch.randn(5, 3), torch.randn(4, 3)],
        [torch.float32],
        planted_ulp=512,
    )
