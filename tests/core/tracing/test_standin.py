"""A Function's own forward is its reference when none is given."""

from __future__ import annotations

import pytest
import torch

from kernels_core.report import Verdict
from kernels_core.verify import check


class OldStyle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * ctx.scale * g, None


class NewStyle(torch.autograd.Function):
    @staticmethod
    def forward(x, scale):
        return x * x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale = inputs
        ctx.save_for_backward(x)
        ctx.scale = scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * ctx.scale * g, None


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index, unused):
        ctx.save_for_backward(x)
        count = torch.ones_like(index)
        ctx.mark_non_differentiable(count)
        return x * 3, x * x, count

    @staticmethod
    def backward(ctx, g0, g1, _):
        (x,) = ctx.saved_tensors
        return 3 * g0 + 2 * x * g1, None, None


class WrongInner(torch.autograd.Function):
    """Its backward is wrong, which must not enter the reference of a Function that calls it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * g


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return WrongInner.apply(x) + x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (2 * x + 1) * g


@pytest.mark.parametrize("function", [OldStyle, NewStyle])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_both_forward_styles_are_references_of_themselves(function, dtype):
    report = check(function, (torch.randn(3, 5).to(dtype), 3))
    assert report.verdict is Verdict.COVERED
    assert [row.name for row in report.tensors] == ["output", "grad_x"]


def test_several_outputs_integer_and_none_inputs_are_taken():
    report = check(Several, (torch.randn(4), torch.arange(4), None))
    assert [row.name for row in report.tensors] == ["output[0]", "output[1]", "output[2]", "grad_x"]
    assert report.covered


def test_a_nested_function_is_differentiated_by_its_forward():
    assert check(Outer, (torch.randn(6),)).covered


def test_apply_works_again_afterwards():
    x = torch.ones(2, requires_grad=True)
    check(Outer, (torch.randn(2),))
    WrongInner.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 3]
