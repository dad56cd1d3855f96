"""Upstream gradients that are zero, undefined, or given to one output alone."""

from __future__ import annotations

import torch

from kernels_core.report import Outcome
from tests.core.battery.planted import require_caught, require_left_alone, seeded


class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.sin(), x.cos())
        ctx.set_materialize_grads(False)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, first, second):
        s, c = ctx.saved_tensors
        if first is None or second is None:
            return first * c if first is not None else -second * s if second is not None else None
        return first * c - second * s


class GivesUpOnUndefined(SinCos):
    @staticmethod
    def backward(ctx, first, second):
        s, c = ctx.saved_tensors
        return None if first is None or second is None else first * c - second * s


class CannotTakeUndefined(SinCos):
    @staticmethod
    def backward(ctx, first, second):
        s, c = ctx.saved_tensors
        return first * c - second * s


class DividesByTheFirst(SinCos):
    @staticmethod
    def backward(ctx, first, second):
        s, c = ctx.saved_tensors
        return torch.where(first == 0, first * c, first * c - second * s)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class ScaledByTheLargest(Double):
    @staticmethod
    def backward(ctx, grad):
        scale = torch.exp2(torch.floor(torch.log2(grad.abs().max())))  # a power of two: exact
        return 2 * (grad / scale) * scale


def root(x):
    return x.abs().sqrt()


X = {"x": seeded(3, 4)}


def test_gradient_that_is_lost_with_an_undefined_one_is_caught():
    require_caught(
        GivesUpOnUndefined, "undefined_grad_output", X, "only output[0] defined: 12 of 12 elements of grad_x"
    )
    require_left_alone(SinCos, "undefined_grad_output", X)


def test_backward_that_raises_on_undefined_gradients_is_caught():
    require_caught(CannotTakeUndefined, "undefined_grad_output", X, "backward raised TypeError")
    require_left_alone(Double, "undefined_grad_output", X)


def test_second_output_that_counts_only_beside_the_first_is_caught():
    require_caught(DividesByTheFirst, "each_output_alone", X, "only output[1]: 12 of 12 elements of grad_x violated")
    require_left_alone(SinCos, "each_output_alone", X)
    require_left_alone(Double, "each_output_alone", X, Outcome.NOT_APPLICABLE)


def test_nan_from_zero_gradients_is_caught():
    require_caught(ScaledByTheLargest, "zero_grad_output", X, "12 of 12 elements of grad_x are not zero, [0, 0] is nan")
    require_left_alone(Double, "zero_grad_output", X)


def test_nan_that_the_reference_returns_for_zero_gradients_is_left_alone():
    row = require_left_alone(root, "zero_grad_output", {"x": torch.tensor([0.25, 1.0])})
    assert row.evidence == "zero upstream gradients give zero gradients"
