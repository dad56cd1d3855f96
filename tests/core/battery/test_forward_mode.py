"""Tangents from a Function's own jvp."""

from __future__ import annotations

import pytest
import torch

from kernels_core.report import Outcome
from tests.core.battery.planted import report_of, require_caught, require_left_alone, seeded
from tests.core.kernel.ways_to_write import operator_inside


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b, grad * a

    @staticmethod
    def jvp(ctx, da, db):
        a, b = ctx.saved_tensors
        return da * b + a * db


class OneTermMissing(Product):
    @staticmethod
    def jvp(ctx, da, db):
        _, b = ctx.saved_tensors
        return da * b


class ZeroTangent(Product):
    @staticmethod
    def jvp(ctx, da, db):
        return torch.zeros_like(da)


class InHalf(Product):
    @staticmethod
    def jvp(ctx, da, db):
        a, b = ctx.saved_tensors
        return (da.half() * b.half() + a.half() * db.half()).float()


class Raises(Product):
    @staticmethod
    def jvp(ctx, da, db):
        raise RuntimeError("out of memory")


class WithoutJvp(torch.autograd.Function):
    forward = staticmethod(Product.forward)
    backward = staticmethod(Product.backward)


class Sincos(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin(), x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx, first, second):
        s, c = ctx.saved_tensors
        return first * c - second * s

    @staticmethod
    def jvp(ctx, dx):
        s, c = ctx.saved_tensors
        return dx * c, -dx * s


INPUTS = {"a": seeded(4, 6), "b": seeded(4, 6, seed=1)}


@pytest.mark.parametrize(
    ("kernel", "evidence"),
    [
        (OneTermMissing, "24 of 24 elements of tangent_output violated"),
        (ZeroTangent, "24 of 24 elements of tangent_output violated"),
        (InHalf, "of tangent_output violated"),
        (Raises, "raised RuntimeError: out of memory"),
    ],
)
def test_wrong_tangents_are_caught(kernel, evidence):
    require_caught(kernel, "forward_mode", INPUTS, evidence)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_right_tangents_are_left_alone(dtype):
    require_left_alone(Product, "forward_mode", {n: t.to(dtype) for n, t in INPUTS.items()})
    row = require_left_alone(Sincos, "forward_mode", {"x": seeded(9).to(dtype)})
    assert row.evidence == "the tangents of 2 outputs"


def test_a_function_without_jvp_is_not_held_to_it():
    row = require_left_alone(WithoutJvp, "forward_mode", INPUTS, Outcome.NOT_APPLICABLE)
    assert row.evidence == "the Function has no jvp"

    def wrapped(a, b):
        return WithoutJvp.apply(a, b)

    row = require_left_alone(wrapped, "forward_mode", INPUTS, Outcome.NOT_APPLICABLE)
    assert "raised" in row.evidence


def test_a_function_of_pytorchs_operations_has_its_forward_mode_checked():
    require_left_alone(lambda a, b: torch.tanh(a) * b, "forward_mode", INPUTS)


def test_a_jvp_that_is_wrong_is_a_violation_of_the_case():
    assert str(report_of(ZeroTangent, "forward_mode", INPUTS).verdict) == "violated"


def test_a_custom_operator_is_not_held_to_a_forward_mode_that_pytorch_does_not_have():
    row = require_left_alone(operator_inside(1.0), "forward_mode", {"x": seeded(5)}, Outcome.NOT_APPLICABLE)
    assert "custom operator: exactref_tests::square_100" in row.evidence
