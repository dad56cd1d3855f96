"""torch.func.vmap of a Function with a rule of its own, or a generated one."""

from __future__ import annotations

import pytest
import torch

from kernels_core.report import Outcome
from tests.core.battery.planted import require_caught, require_left_alone, seeded


class Generated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b, grad * a


class GeneratedFromSizes(Generated):
    @staticmethod
    def forward(x):
        return x.softmax(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(0, keepdim=True))


class Softmax(GeneratedFromSizes):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x):
        return SoftmaxAlongOne.apply(x.movedim(in_dims[0], 0)), 0


class SoftmaxAlongOne(GeneratedFromSizes):
    @staticmethod
    def forward(x):
        return x.softmax(1)

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(1, keepdim=True))


class AcrossSamples(Softmax):
    @staticmethod
    def vmap(info, in_dims, x):
        return GeneratedFromSizes.apply(x.movedim(in_dims[0], 0)), 0


class AssumesTheFirstDimension(Softmax):
    @staticmethod
    def vmap(info, in_dims, x):
        return SoftmaxAlongOne.apply(x), 0


class Product(Generated):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, a, b):
        a, b = (t if d is None else t.movedim(d, 0) for t, d in zip((a, b), in_dims, strict=True))
        return Product.apply(a, b), 0


class ForgetsSharedInputs(Product):
    @staticmethod
    def vmap(info, in_dims, a, b):
        a, b = (t.movedim(d, 0) for t, d in zip((a, b), in_dims, strict=True))
        return Product.apply(a, b), 0


class WithoutRule(Generated):
    generate_vmap_rule = False


SQUARE = {"x": seeded(4, 4)}
TWO = {"a": seeded(3, 5), "b": seeded(3, 5, seed=1)}


@pytest.mark.parametrize(
    ("kernel", "inputs", "evidence"),
    [
        (AcrossSamples, SQUARE, "batch in front, first sample"),
        (AssumesTheFirstDimension, SQUARE, "batch in the last dimension"),
        (ForgetsSharedInputs, TWO, "only a has a batch: vmap raised TypeError"),
    ],
)
def test_wrong_rules_are_caught(kernel, inputs, evidence):
    require_caught(kernel, "vmap", inputs, evidence)


@pytest.mark.parametrize(
    ("kernel", "inputs", "dtype"),
    [
        (Generated, TWO, torch.float32),
        (Generated, TWO, torch.bfloat16),
        (GeneratedFromSizes, SQUARE, torch.float32),
        (Softmax, SQUARE, torch.float32),
        (Product, TWO, torch.float32),
        (Product, TWO, torch.float16),
    ],
)
def test_right_rules_are_left_alone(kernel, inputs, dtype):
    require_left_alone(kernel, "vmap", {n: t.to(dtype) for n, t in inputs.items()})


def test_a_function_without_a_rule_is_not_held_to_it():
    require_left_alone(WithoutRule, "vmap", TWO, Outcome.NOT_APPLICABLE)
    require_left_alone(lambda a, b: a * b, "vmap", TWO, Outcome.NOT_APPLICABLE)
