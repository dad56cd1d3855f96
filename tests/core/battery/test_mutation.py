"""Writing to what belongs to the caller."""

from __future__ import annotations

import pytest
import torch

from kernels_core.report import Outcome
from tests.core.battery.planted import report_of, require_caught, require_left_alone, seeded

CALLS = torch.zeros(1)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class WritesToItsInput(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        y = x * x
        x.detach().zero_()
        return y


class WritesToItsOutput(Square):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x)
        ctx.y = y
        return y

    @staticmethod
    def backward(ctx, grad):
        ctx.y.zero_()
        return Square.backward(ctx, grad)


class WritesToTheGradient(Square):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * grad.mul_(x)


class WritesToWhatItSaved(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (twice,) = ctx.saved_tensors
        result = twice * grad
        twice.detach().zero_()
        return result


class CountsItsCalls(Square):
    @staticmethod
    def backward(ctx, grad):
        CALLS.add_(1)
        return Square.backward(ctx, grad)


class WritesToItsSparseMatrix(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.eye(3).to_sparse().coalesce(), x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        matrix, x = ctx.saved_tensors
        gradient = matrix @ (2 * x * grad)
        matrix.values().fill_(1 + 2.0**-22)
        return gradient


def square(x):
    return x * x


class InPlace(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        ctx.mark_dirty(x)
        return x.pow_(2)


X = {"x": seeded(3, 4)}


@pytest.mark.parametrize(
    ("kernel", "evidence"),
    [
        (WritesToItsInput, "the forward writes to input x: 12 of 12 elements changed"),
        (WritesToTheGradient, "the backward writes to grad_output: 12 of 12 elements changed"),
    ],
)
def test_what_belongs_to_the_caller_is_watched(kernel: type[torch.autograd.Function], evidence: str):
    require_caught(kernel, "mutation", X, evidence, reference=square)
    require_left_alone(Square, "mutation", X, reference=square)


def test_output_that_the_backward_overwrites_is_named():
    (row,) = report_of(WritesToItsOutput, "mutation", X, reference=square).battery
    assert row.outcome is Outcome.FAIL
    assert row.evidence.startswith("the backward writes to output: 12 of 12 elements changed")


def test_input_that_is_declared_dirty_is_left_alone():
    require_left_alone(InPlace, "mutation", X, reference=square)


def test_running_statistics_that_the_reference_writes_too_are_left_alone():
    def norm(x, mean, variance):
        return torch.nn.functional.batch_norm(x, mean, variance, training=True)

    def forgetful(x, mean, variance):
        y = norm(x.clone(), mean, variance)
        x.data.zero_()
        return y

    inputs = {"x": seeded(6, 4), "mean": torch.zeros(4), "variance": torch.ones(4)}
    require_left_alone(norm, "mutation", inputs, wrt=["x"])
    require_caught(forgetful, "mutation", inputs, "the forward writes to input x", wrt=["x"], reference=norm)


def test_what_the_kernel_saved_itself_is_noted():
    row = require_left_alone(WritesToWhatItSaved, "mutation", X, Outcome.NOTED)
    assert "the backward writes to saved tensor 0 of WritesToWhatItSaved" in row.evidence


def test_sparse_tensor_that_is_saved_is_watched_by_what_it_is_stored_in():
    row = require_left_alone(WritesToItsSparseMatrix, "mutation", X, Outcome.NOTED, reference=square)
    assert "the backward writes to saved tensor 0 of WritesToItsSparseMatrix (values)" in row.evidence


def test_global_tensors_are_noted():
    row = require_left_alone(CountsItsCalls, "mutation", X, Outcome.NOTED)
    assert "the backward writes to global CALLS" in row.evidence


def test_module_that_writes_to_its_weight_is_caught():
    class Layer(torch.nn.Module):
        def __init__(self, *, writes: bool) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))
            self.writes = writes

        def forward(self, x):
            y = 2 * x
            if self.writes:
                self.weight.data.mul_(0.5)
            return y

    require_caught(Layer(writes=True), "mutation", X, "the forward writes to parameter weight", reference=twice)
    require_left_alone(Layer(writes=False), "mutation", X, reference=twice)


def twice(x):
    return 2 * x


def test_input_that_is_written_where_no_gradient_is_asked_is_caught():
    def fast_where_it_may(x):
        return x * torch.sigmoid(x) if torch.is_grad_enabled() else x.mul_(torch.sigmoid(x))

    def silu(x):
        return x * torch.sigmoid(x)

    evidence = "the forward under no_grad writes to input x"
    require_caught(fast_where_it_may, "mutation", {"x": seeded(4, 5)}, evidence, reference=silu)
    require_left_alone(silu, "mutation", {"x": seeded(4, 5)}, reference=silu)
