"""Reductions over segments and bags: eager kernels covered, errors caught, empty segments as PyTorch defines them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.core.rules.checker import check_rule, check_special

LENGTHS = torch.tensor([2, 0, 3, 1])


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segment_reduce_covers_eager_kernels_with_an_empty_segment(reduce: str) -> None:
    torch.manual_seed(0)
    check_rule(
        lambda x: torch.segment_reduce(x, reduce, lengths=LENGTHS, axis=0, initial=1.0),
        [torch.randn(6, 3)],
        [torch.float32],
    )


def test_segment_reduce_along_a_later_axis_covers_eager_kernels() -> None:
    lengths = torch.tensor([[1, 3], [2, 2]])
    check_rule(
        lambda x: torch.segment_reduce(x, "sum", lengths=lengths, axis=1), [torch.randn(2, 4, 3)], [torch.float32]
    )


def test_the_mean_of_an_empty_segment_is_nan() -> None:
    check_special(
        lambda x: torch.segment_reduce(x, "mean", lengths=LENGTHS, axis=0),
        [torch.randn(6, 2)],
        gradient=False,
        decided=1.0,
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
def test_embedding_bag_covers_eager_kernels_with_padding_and_an_empty_bag(mode: str, last: bool) -> None:
    torch.manual_seed(1)
    rows, offsets = torch.tensor([1, 2, 2, 4, 0, 3, 1]), torch.tensor([0, 3, 3, 5, 7][: 5 if last else 4])
    check_rule(
        lambda w: F.embedding_bag(rows, w, offsets, mode=mode, padding_idx=4, include_last_offset=last),
        [torch.randn(5, 3)],
        [torch.float32],
    )


def test_embedding_bag_with_weights_covers_eager_kernels() -> None:
    torch.manual_seed(2)
    rows = torch.tensor([[1, 2, 2], [4, 0, 3]])
    check_rule(
        lambda w, s: F.embedding_bag(rows, w, mode="sum", per_sample_weights=s),
        [torch.randn(5, 3), torch.randn(2, 3)],
        [torch.float32],
        caught=0.8,
    )
