"""Tensors that belong to others as well."""

from __future__ import annotations

import torch

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
