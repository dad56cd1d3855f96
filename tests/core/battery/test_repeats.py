"""State that a kernel keeps from one call to the next."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from kernels_core.report import Outcome
from tests.core.battery.planted import kernel, require_caught, require_left_alone, seeded

Sine, sine = kernel("Sine"), kernel("sine")
UsesUpWhatItKeeps = kernel("UsesUpWhatItKeeps")


def accumulating() -> type[torch.autograd.Function]:
    total = torch.zeros(3, 4)

    class Accumulates(Sine):
        @staticmethod
        def backward(ctx, grad):
            total.add_(Sine.backward(ctx, grad))
            return total.clone()

    return Accumulates


def with_a_buffer() -> type[torch.autograd.Function]:
    buffer = torch.empty(3, 4)

    class ReturnsItsBuffer(Sine):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x, out=buffer).detach()

    return ReturnsItsBuffer


def caching(*, by_values: bool) -> type[torch.autograd.Function]:
    cache: dict[Any, Any] = {}

    class Caches(Sine):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            key = tuple(x.flatten().tolist()) if by_values else x.data_ptr()
            found = cache.setdefault(key, (x, torch.sin(x)))  # keeps x, so that its address is not used again
            return found[1].clone()

    return Caches


class FreesWhatItKeeps(UsesUpWhatItKeeps):
    @staticmethod
    def backward(ctx, grad):
        result = ctx.factor * grad
        del ctx.factor
        return result


def alternating() -> type[torch.autograd.Function]:
    calls = itertools.count()

    class Alternates(Sine):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            exact = torch.cos(x.double()) * grad.double()
            return (exact * (1 + 1e-7 * (next(calls) % 2))).float()

    return Alternates


X = {"x": seeded(3, 4)}


def test_gradient_that_grows_with_every_call_is_caught():
    require_caught(accumulating(), "later_calls", X, "call 2: 12 of 12 elements of grad_x violated")
    require_left_alone(Sine, "later_calls", X)


def test_output_that_the_next_call_overwrites_is_caught():
    evidence = "output of an earlier call changes with the next: 12 of 12 elements"
    require_caught(with_a_buffer(), "fresh_allocation", X, evidence, reference=sine)
    require_left_alone(Sine, "fresh_allocation", X)


def test_cache_by_address_is_caught_and_one_by_values_is_not():
    evidence = "new values under the same pointers: 12 of 12 elements of output violated"
    require_caught(caching(by_values=False), "same_pointers", X, evidence, reference=sine)
    require_left_alone(caching(by_values=True), "same_pointers", X, reference=sine)


def test_kept_tensor_that_a_backward_uses_up_is_caught():
    evidence = "the second backward of a graph: 12 of 12 elements of grad_x violated"
    require_caught(UsesUpWhatItKeeps, "retained_graph", X, evidence, reference=sine)
    require_left_alone(Sine, "retained_graph", X)


def test_backward_that_runs_once_only_has_refused():
    row = require_left_alone(FreesWhatItKeeps, "retained_graph", X, Outcome.REFUSED)
    assert "the second backward of a graph: backward raised AttributeError" in row.evidence


def test_calls_that_differ_within_bounds_are_noted_and_fail_only_where_asked():
    row = require_left_alone(alternating(), "determinism", X, Outcome.NOTED)
    assert row.evidence.startswith("grad_x differs between 3 calls at ")
    require_caught(alternating(), "determinism", X, "more than 0", nondet_tol=0.0)
    require_left_alone(alternating(), "determinism", X, Outcome.NOTED, nondet_tol=1e-3)
    require_left_alone(Sine, "determinism", X, nondet_tol=0.0)


@pytest.mark.parametrize("item", ["later_calls", "fresh_allocation", "same_pointers", "retained_graph", "determinism"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
def test_narrow_dtypes_are_taken(item: str, dtype: torch.dtype):
    class Halve(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x.float() / 2).to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            return (grad.float() / 2).to(grad.dtype)

    require_left_alone(Halve, item, {"x": seeded(3, 4).to(dtype)})
