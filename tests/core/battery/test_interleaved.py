"""Between a forward and its backward: other calls of the kernel, and writes to what it was given."""

from __future__ import annotations

from collections import deque

import pytest
import torch

from tests.core.battery.planted import kernel, require_caught, require_left_alone, row_of, seeded

Sine = kernel("Sine")
X = {"x": seeded(3, 4)}


def keeping(take: str) -> type[torch.autograd.Function]:
    """Return a sine that puts its inputs in a queue outside of its context; `take` says which end is used."""
    kept: deque[torch.Tensor] = deque()

    class Queues(Sine):
        @staticmethod
        def forward(ctx, x):
            kept.append(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, grad):
            return torch.cos(getattr(kept, take)()) * grad

    return Queues


class KeepsItsOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = torch.exp(x)
        return ctx.y

    @staticmethod
    def backward(ctx, grad):
        return ctx.y * grad


@pytest.mark.parametrize("take", ["pop", "popleft"])
def test_inputs_kept_in_a_stack_or_a_queue_are_caught(take: str) -> None:
    require_caught(
        keeping(take), "interleaved_calls", X, "12 of 12 elements of grad_x violated", reference=kernel("sine")
    )


def test_input_kept_on_the_class_is_caught_by_the_first_order() -> None:
    evidence = "forward a, forward b, backward b, backward a: 12 of 12 elements of grad_x violated"
    require_caught(kernel("KeepsItsInputOnTheClass", "state_faults.py"), "interleaved_calls", X, evidence,
                   reference=kernel("sine"))  # fmt: skip


def test_autograd_raises_for_what_was_saved_and_this_passes() -> None:
    row = require_left_alone(Sine, "changed_in_place", X)
    assert row.evidence == "autograd raises where x changed; 1 other is not used again"


def test_values_of_its_own_may_be_kept_on_the_context() -> None:
    slope = kernel("KeepsItsSlope", "derivative_faults.py")
    require_left_alone(slope, "changed_in_place", X, reference=kernel("sine"))


def test_output_kept_on_the_context_is_caught_and_named() -> None:
    row = row_of(KeepsItsOutput, "changed_in_place", X)
    assert "output changed before the backward: 12 of 12" in row.evidence
    assert "KeepsItsOutput keeps it as ctx.y, which has no version counter" in row.evidence


def test_each_tensor_is_changed_alone_so_that_one_that_raises_hides_no_other() -> None:
    class HalfSaved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a)
            ctx.b = b
            return a * b

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.b, grad * ctx.saved_tensors[0]

    inputs = {"a": seeded(3), "b": seeded(3, seed=1)}
    require_caught(HalfSaved, "changed_in_place", inputs, "b changed before the backward: ")
    require_left_alone(kernel("Multiply"), "changed_in_place", inputs)


def squared(x: torch.Tensor, s: float = 2.0) -> torch.Tensor:
    return x * x * s


@pytest.mark.parametrize("take", ["pop", "popleft", "__iter__"])
def test_a_plain_argument_kept_outside_of_the_context_is_caught(take: str) -> None:
    kept: deque[float] = deque()

    class KeepsItsScale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, s=2.0):
            kept.append(s)
            ctx.save_for_backward(x)
            return x * x * s

        @staticmethod
        def backward(ctx, grad):
            s = list(kept)[-1] if take == "__iter__" else getattr(kept, take)()
            return 2 * ctx.saved_tensors[0] * s * grad, None

    require_caught(KeepsItsScale, "interleaved_calls", X, "12 of 12 elements of grad_x violated", reference=squared)


def test_input_kept_for_each_argument_is_caught_where_the_arguments_are_the_same() -> None:
    last: dict[float, torch.Tensor] = {}

    class KeepsTheLast(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, s=2.0):
            ctx.s, last[s] = s, x
            return x * x * s

        @staticmethod
        def backward(ctx, grad):
            return 2 * last[ctx.s] * ctx.s * grad, None

    require_caught(KeepsTheLast, "interleaved_calls", X, "12 of 12 elements of grad_x violated", reference=squared)


def test_the_row_says_which_arguments_the_other_call_has() -> None:
    row = require_left_alone(squared, "interleaved_calls", X)
    assert row.evidence == "a backward uses what its own forward was given; s=3 in the other call"


def test_arguments_that_the_kernel_refuses_are_those_of_the_case_again() -> None:
    class TakesTwo(Sine):
        @staticmethod
        def forward(ctx, x, s=2.0):
            if s != 2:
                raise ValueError("s must be 2")
            TakesTwo.x = x
            return torch.sin(x)

        @staticmethod
        def backward(ctx, grad):
            return torch.cos(TakesTwo.x) * grad, None

    def reference(x: torch.Tensor, s: float = 2.0) -> torch.Tensor:
        return torch.sin(x)

    require_caught(TakesTwo, "interleaved_calls", X, "12 of 12 elements of grad_x violated", reference=reference)
