"""A Function's own forward is its reference when none is given."""

from __future__ import annotations

import pytest
import torch

from kernels_core.battery import Settings
from kernels_core.report import Outcome, Verdict
from kernels_core.verify import check, verify


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


def without_grad(x):
    with torch.no_grad():
        return torch.sin(x)


CUTS = {
    "detach": lambda x: torch.sin(x.detach()),
    "torch.detach": lambda x: torch.sin(torch.detach(x)),
    "data": lambda x: torch.sin(x.data),
    "no_grad": without_grad,
}


class Sine(torch.autograd.Function):
    @staticmethod
    def backward(ctx, g):
        return torch.cos(ctx.saved_tensors[0]) * g


def sine_by(sine, factor=1.0):
    """Return a Function whose forward is `sine`, its gradient times a factor."""

    class Made(Sine):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return sine(x)

        @staticmethod
        def backward(ctx, g):
            return Sine.backward(ctx, g) * factor

    return Made


@pytest.mark.parametrize("cut", CUTS)
def test_what_a_forward_cuts_off_from_autograd_belongs_to_it(cut):
    x = torch.randn(9)
    report = check(sine_by(CUTS[cut]), (x,), battery=["double_backward"])
    assert report.verdict is Verdict.COVERED, report
    assert report.battery[0].outcome is Outcome.PASS
    assert check(sine_by(CUTS[cut], 1.01), (x,)).row("grad_x").violated == 9


def test_a_reference_that_cuts_off_means_it():
    x = torch.randn(9)
    assert check(torch.sin, (x,), reference=CUTS["detach"]).row("grad_x").violated == 9


class SoftmaxInPlace(torch.autograd.Function):
    """Autograd refuses to differentiate this forward: it writes to what the derivative of exp reads."""

    @staticmethod
    def forward(ctx, x):
        y = x.detach().clone()
        y.sub_(y.amax(-1, keepdim=True)).exp_()
        y.div_(y.sum(-1, keepdim=True))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(-1, keepdim=True))


class WrongSoftmaxInPlace(SoftmaxInPlace):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * g


def test_a_forward_that_writes_to_what_its_derivative_reads_is_a_reference():
    x = torch.randn(3, 5)
    settings = Settings(free=["x"])
    report = verify(SoftmaxInPlace, {"x": x}, battery=["grad_output_values", "values_uniform"], settings=settings)
    assert report.verdict is Verdict.COVERED, report
    assert {row.outcome for row in report.battery} == {Outcome.PASS}
    assert check(WrongSoftmaxInPlace, (x,)).row("grad_x").violated


def test_an_operators_code_runs_outside_of_autograd():
    @torch.library.custom_op("exactref_tests::detached_sine", mutates_args=())
    def sine(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x.detach())

    sine.register_fake(torch.empty_like)
    sine.register_autograd(
        lambda ctx, g: torch.cos(ctx.saved_tensors[0]) * g,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    assert check(sine, (torch.randn(9),)).covered
