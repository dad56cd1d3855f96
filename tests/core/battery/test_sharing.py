"""Tensors that belong to others as well."""

from __future__ import annotations

import torch

from kernels_core.report import Outcome
from tests.core.battery.planted import require_caught, require_left_alone, seeded


class Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class InTheGradientsPlace(Silu):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad.mul_(s * (1 + x * (1 - s)))


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_overwritten_upstream_gradient_is_caught():
    require_caught(InTheGradientsPlace, "shared_grad_output", {"x": seeded(4, 6)}, "24 of 24 elements were overwritten")
    require_left_alone(Silu, "shared_grad_output", {"x": seeded(4, 6)})


def test_upstream_gradient_that_is_passed_on_is_left_alone():
    require_left_alone(Identity, "shared_grad_output", {"x": seeded(4, 6)})


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


class AddWithViews(Add):
    @staticmethod
    def backward(ctx, grad):
        return grad.view_as(grad), grad.view_as(grad)


PAIR = {"a": seeded(3, 4), "b": seeded(3, 4, seed=1)}


def test_two_views_of_one_gradient_are_caught_where_they_are_accumulated():
    evidence = "two backwards accumulated in .grad, halved: 12 of 12 elements of grad_a violated"
    require_caught(AddWithViews, "aliasing", PAIR, evidence)


def test_one_tensor_for_two_inputs_is_no_fault_but_is_noted():
    row = require_left_alone(Add, "aliasing", PAIR, Outcome.NOTED)
    assert row.evidence == "grad_a and grad_b share memory (and 2 more)"
    require_left_alone(Silu, "aliasing", {"x": seeded(3)})


class ExpInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        ctx.save_for_backward(x.exp_())
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def test_a_kernel_that_works_in_place_is_given_the_same_values_twice():
    row = require_left_alone(ExpInPlace, "aliasing", {"x": seeded(3, 4)}, Outcome.NOTED, reference=torch.exp)
    assert row.evidence == "output shares memory with the input input"
