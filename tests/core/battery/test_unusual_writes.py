"""Kernels that write what no value shows: shapes, `.grad`, the upstream gradient they are given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels_core.errors import UsageError
from kernels_core.verify import verify
from tests.core.battery.planted import kernel, require_caught, require_left_alone, seeded

Tensor = torch.Tensor
Sine, sine = kernel("Sine"), kernel("sine")
X = {"x": seeded(5, 6)}


class TransposesItsInput(Sine):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = Sine.forward(ctx, x.clone())
        x.t_()
        return y


class TransposesTheUpstream(Sine):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        found = Sine.backward(ctx, grad)
        grad.t_()
        return found


class OverwritesTheUpstream(Sine):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if 0 in grad.stride():
            grad.as_strided((1,), (1,)).zero_()  # the one number that is expanded
        return Sine.backward(ctx, grad)


class WipesTheGradient(Sine):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.grad = None
        return Sine.forward(ctx, x)


def test_shape_that_changes_is_a_write() -> None:
    evidence = "writes to input x: its shape was [5, 6], is [6, 5]"
    require_caught(TransposesItsInput, "mutation", X, evidence, reference=sine)
    evidence = "the backward writes to grad_output: its shape was [5, 6], is [6, 5]"
    require_caught(TransposesTheUpstream, "mutation", X, evidence, reference=sine)
    require_left_alone(Sine, "mutation", X, reference=sine)


def test_intervals_are_those_of_the_upstream_before_a_kernel_writes_to_it() -> None:
    require_left_alone(TransposesTheUpstream, "grad_output_layout", X, reference=sine)
    require_caught(OverwritesTheUpstream, "grad_output_layout", X, "expanded (one number)", reference=sine)


def test_gradient_that_is_wiped_in_a_forward_is_caught() -> None:
    require_caught(WipesTheGradient, "aliasing", X, "two backwards accumulated in .grad", reference=sine)
    require_left_alone(Sine, "aliasing", X, reference=sine)


def test_sparse_gradient_is_refused_in_one_line() -> None:
    class Rows(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Tensor, index: Tensor) -> Tensor:
            ctx.index, ctx.shape = index, weight.shape
            return weight[index]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return torch.sparse_coo_tensor(ctx.index[None], grad, ctx.shape, check_invariants=True), None

    inputs = {"weight": seeded(5, 6), "index": torch.tensor([1, 3])}
    with pytest.raises(UsageError, match=r"^grad_weight: sparse tensors are not supported"):
        verify(Rows, inputs, reference=lambda weight, index: weight[index])
