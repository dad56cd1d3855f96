"""Sparse softmaxes: equal elements leave their gradients as tight as others."""

from __future__ import annotations

import pytest
import torch

from kernels_core.references import catalogue
from kernels_core.report import Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor


class _Scaled(torch.autograd.Function):
    """x, with a gradient that is a tenth too large."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad * 1.1


@pytest.mark.parametrize("name", ["sparsemax", "sparsemax.shifted", "entmax15"])
def test_gradient_of_a_row_with_equal_elements_is_violated_a_tenth_too_large(name: str) -> None:
    entry, _, algorithm = name.partition(".")
    reference = catalogue()[entry].algorithms.get(algorithm) or catalogue()[entry]
    row = torch.tensor([[1.0, 1.0, 0.8125, 0.8125, 0.25, -2.0, -2.0, -3.0]], dtype=torch.bfloat16)
    right = verify(lambda input: reference.function(input), {"input": row}, reference=reference)
    wrong = verify(lambda input: reference.function(_Scaled.apply(input)), {"input": row}, reference=reference)
    assert right.row("grad_input").verdict is Verdict.COVERED
    assert wrong.row("grad_input").verdict is Verdict.VIOLATED
