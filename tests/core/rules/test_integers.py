"""Integer tensors through operations that mostly see floating ones: PyTorch's own values, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels_core.coverage import Element
from kernels_core.reference import reference

Tensor = torch.Tensor
DATA = torch.arange(-54, 54).reshape(1, 3, 6, 6)
WEIGHT = torch.arange(-13, 14).reshape(3, 3, 3)
INDEX = torch.tensor([0, 1, 0, 2, 0, 1])

WHOLE: dict[str, Callable[[Tensor], Any]] = {
    "clamp_min": lambda x: x.clamp_min(3),
    "clamp_max": lambda x: x.clamp_max(3),
    "clamp_min of a tensor": lambda x: torch.clamp_min(x, torch.full((6,), 3)),
    "rsub": lambda x: torch.rsub(x, 7, alpha=2),
    "rsub of a tensor": lambda x: torch.rsub(x, torch.arange(6), alpha=2),
    "conv1d": lambda x: F.conv1d(x.flatten(2), WEIGHT, torch.arange(3)),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x.flatten(2), WEIGHT),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "index_reduce by the mean": lambda x: x[0, 0].index_reduce(0, INDEX, x[0, 1], "mean"),
    "index_reduce by the mean of the others": lambda x: x[0, 0].index_reduce(
        0, INDEX, x[0, 1], "mean", include_self=False
    ),
    "scatter_reduce by the mean": lambda x: x[0, 0, 0].scatter_reduce(0, INDEX, x[0, 1, 0], "mean"),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", WHOLE)
def test_integers_are_exact(name: str) -> None:
    result, actual = reference(WHOLE[name])(DATA), WHOLE[name](DATA)
    assert bool((result.verdict(actual) == Element.COVERED).all())
    assert bool((result.verdict(actual + 1) == Element.VIOLATED).all())


@pytest.mark.parametrize("x", [torch.eye(3) > 0, torch.eye(3, dtype=torch.int64) * 2**25 + 1], ids=["bool", "int64"])
def test_logsumexp_of_integers_is_that_of_their_float32_values(x: Tensor) -> None:
    result, actual = reference(lambda x: torch.logsumexp(x, -1))(x), torch.logsumexp(x, -1)
    assert bool((result.verdict(actual) == Element.COVERED).all())
    assert bool((result.verdict(actual * (1 + 2.0**-18)) == Element.VIOLATED).all())
