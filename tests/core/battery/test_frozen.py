"""Frozen inputs: every subset of them is a path of its own through the backward."""

from __future__ import annotations

import torch

from kernels_core.battery.frozen import subsets
from tests.core.battery.planted import kernel, require_caught, require_left_alone, seeded

Multiply, multiply = kernel("Multiply"), kernel("multiply")


class SavesOnlyForGradients(Multiply):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b if any(ctx.needs_input_grad) else a + b


INPUTS = {"a": seeded(3, 4), "b": seeded(3, 4, seed=1)}


def test_gradient_that_depends_on_the_wrong_input_is_caught():
    evidence = "only a differentiated: 12 of 12 elements of grad_a"
    require_caught(kernel("AsksForTheOtherInput"), "frozen_inputs", INPUTS, evidence)
    require_left_alone(Multiply, "frozen_inputs", INPUTS)


def test_forward_without_any_gradient_is_looked_at():
    evidence = "nothing differentiated: 12 of 12 elements of output violated"
    require_caught(SavesOnlyForGradients, "frozen_inputs", INPUTS, evidence, reference=multiply)


def test_subsets_are_all_proper_ones_each_once():
    found = list(subsets("abcd"))
    assert len(found) == len(set(found)) == 15
    assert found[:4] == [("a",), ("b",), ("c",), ("d",)]
    assert () in found


class MultiplyInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(b, a.clone())
        ctx.mark_dirty(a)
        return a.mul_(b)

    @staticmethod
    def backward(ctx, grad):
        b, a = ctx.saved_tensors
        return grad * b, grad * a


def test_a_frozen_input_that_is_written_to_has_no_gradient_to_be_judged():
    require_left_alone(MultiplyInPlace, "frozen_inputs", INPUTS, reference=multiply)
