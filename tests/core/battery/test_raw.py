"""What the engine repairs silently, and gradients that are None."""

from __future__ import annotations

import torch

from kernels_core.report import Outcome
from tests.core.battery.planted import require_caught, require_left_alone, seeded


class AddBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, grad):
        return grad, grad.sum(0)


class LeavesTheSumToTheEngine(AddBias):
    @staticmethod
    def backward(ctx, grad):
        return grad, grad


class ReturnsFloat64(AddBias):
    @staticmethod
    def backward(ctx, grad):
        return grad, grad.double().sum(0)


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x > 0) if bool((x > 0).any()) else None


class Gradientless(Relu):
    @staticmethod
    def backward(ctx, grad):
        return None


def nested(x, bias):
    return LeavesTheSumToTheEngine.apply(2 * x, bias)


INPUTS = {"x": seeded(4, 8), "bias": seeded(8, seed=1)}
SHAPE = "LeavesTheSumToTheEngine.backward returned for bias the shape [4, 8], not [8]"


def test_gradient_that_the_engine_sums_is_caught():
    require_caught(LeavesTheSumToTheEngine, "raw_backward", INPUTS, SHAPE)
    require_left_alone(AddBias, "raw_backward", INPUTS)


def test_function_inside_of_a_plain_function_is_looked_at():
    require_caught(nested, "raw_backward", INPUTS, SHAPE)


def test_gradient_that_the_engine_casts_is_noted():
    row = require_left_alone(ReturnsFloat64, "raw_backward", INPUTS, Outcome.NOTED)
    assert (
        row.evidence == "ReturnsFloat64.backward returned for bias float64, not float32; the engine casts it silently"
    )


def test_backward_is_left_as_it_was():
    before = dict(vars(AddBias)), dict(vars(LeavesTheSumToTheEngine))
    require_left_alone(AddBias, "raw_backward", INPUTS)
    assert before == (dict(vars(AddBias)), dict(vars(LeavesTheSumToTheEngine)))


def test_none_that_hides_behind_inputs_of_zero_gradient_is_caught():
    negative = {"x": -seeded(3, 4).abs()}
    evidence = "grad_x is None at negated inputs too, the true gradient is not zero at 12 of 12 elements"
    require_caught(Gradientless, "none_gradient", negative, evidence)
    require_left_alone(Relu, "none_gradient", negative)
    require_left_alone(Relu, "none_gradient", {"x": seeded(3, 4)}, Outcome.NOT_APPLICABLE)
