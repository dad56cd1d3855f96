"""Differentiating twice: right, refused, or silently wrong."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.function import once_differentiable

import exactref as er
from kernels_core.report import Outcome
from tests.core.battery.planted import report_of, require_caught, require_left_alone, row_of, seeded


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * (1 - y * y)


class SlopeFromTheForward(Tanh):
    """The slope is a constant to autograd: it was computed where no graph is recorded."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.slope = 1 - y * y
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.slope


class SavedIntermediate(SlopeFromTheForward):
    """The same, kept by save_for_backward, which is for inputs and outputs."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(1 - y * y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (slope,) = ctx.saved_tensors
        return grad * slope


class ByAnotherLibrary(Tanh):
    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return torch.from_numpy(grad.detach().numpy() * (1 - y.detach().numpy() ** 2))


class OnceDifferentiable(ByAnotherLibrary):
    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return torch.from_numpy(grad.numpy() * (1 - y.numpy() ** 2))


class Refusing(Tanh):
    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            raise RuntimeError("tanh cannot be differentiated twice")
        return Tanh.backward(ctx, grad)


class TanhBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad, y):
        ctx.save_for_backward(grad, y)
        return grad * (1 - y * y)

    @staticmethod
    def backward(ctx, vector):
        grad, y = ctx.saved_tensors
        return vector * (1 - y * y), -2 * y * grad * vector


class ByHand(Tanh):
    @staticmethod
    def backward(ctx, grad):
        return TanhBackward.apply(grad, *ctx.saved_tensors)


class FactorTwoMissing(TanhBackward):
    @staticmethod
    def backward(ctx, vector):
        grad, y = ctx.saved_tensors
        return vector * (1 - y * y), -y * grad * vector


class UpstreamMissing(TanhBackward):
    @staticmethod
    def backward(ctx, vector):
        grad, y = ctx.saved_tensors
        return vector, -2 * y * grad * vector


class WithFactorTwoMissing(Tanh):
    @staticmethod
    def backward(ctx, grad):
        return FactorTwoMissing.apply(grad, *ctx.saved_tensors)


class WithUpstreamMissing(Tanh):
    @staticmethod
    def backward(ctx, grad):
        return UpstreamMissing.apply(grad, *ctx.saved_tensors)


class Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        ctx.save_for_backward(A, B)
        return A @ B

    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        return grad @ B.T, A.T @ grad


class MatmulOfDetached(Matmul):
    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        return grad @ B.T, A.detach().T @ grad


ONE = {"x": seeded(5, 7)}
TWO = {"A": seeded(5, 7), "B": seeded(7, 3)}


@pytest.mark.parametrize(
    ("kernel", "inputs", "evidence"),
    [
        (SlopeFromTheForward, ONE, "35 of 35 elements of grad_x violated (None returned)"),
        (SavedIntermediate, ONE, "35 of 35 elements of grad_x violated (None returned)"),
        (ByAnotherLibrary, ONE, "grad_x a constant to autograd; is once_differentiable missing?"),
        (WithFactorTwoMissing, ONE, "of grad_x violated"),
        (WithUpstreamMissing, ONE, "35 of 35 elements of grad_grad_output violated"),
        (MatmulOfDetached, TWO, "35 of 35 elements of grad_A violated"),
    ],
)
def test_second_derivatives_that_are_silently_wrong_are_caught(kernel, inputs, evidence):
    require_caught(kernel, "double_backward", inputs, evidence)


# Tanh in 16 bit is left out: 1 - y * y rounds more often than is granted to the first order already.
@pytest.mark.parametrize(
    ("kernel", "inputs", "dtype"),
    [
        (Tanh, ONE, torch.float32),
        (ByHand, ONE, torch.float32),
        (Matmul, TWO, torch.float32),
        (Matmul, TWO, torch.bfloat16),
        (Matmul, TWO, torch.float16),
    ],
)
def test_right_second_derivatives_are_left_alone(kernel, inputs, dtype):
    row = require_left_alone(kernel, "double_backward", {n: t.to(dtype) for n, t in inputs.items()})
    assert row.evidence == f"{len(inputs) + 1} gradients of the gradients"


@pytest.mark.parametrize(
    ("kernel", "evidence"),
    [(OnceDifferentiable, "once_differentiable"), (Refusing, "tanh cannot be differentiated twice")],
)
def test_a_backward_that_refuses_is_not_wrong(kernel, evidence):
    row = require_left_alone(kernel, "double_backward", ONE, Outcome.REFUSED)
    assert evidence in row.evidence


def test_a_constant_gradient_is_right_where_the_second_derivative_is_zero():
    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.sign(x)

        @staticmethod
        def backward(ctx, grad):
            return torch.zeros_like(grad)

    require_left_alone(Sign, "double_backward", ONE)


def test_a_reference_without_second_derivative_is_told():
    def through(inputs, outputs, grads):
        return grads

    row = row_of(torch.sign, "double_backward", {"input": seeded(4)}, reference=torch.sign)
    assert row.outcome is Outcome.PASS
    row = row_of(
        StraightThrough, "double_backward", ONE, reference=torch.sign, reference_backward=through, surrogate=True
    )
    assert row.outcome is Outcome.NOT_APPLICABLE
    assert "declares its gradient as a surrogate" in row.evidence


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sign(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.clone()


def wide(t):
    return t.float() if t.dtype.itemsize < 4 else t


class MatmulOfCasts(Matmul):
    """Each use of a 16-bit tensor converts it, so that autograd adds what the uses give in 16 bits."""

    @staticmethod
    def forward(ctx, A, B):
        ctx.save_for_backward(A, B)
        return (wide(A) @ wide(B)).to(A.dtype)

    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        return (wide(grad) @ wide(B).T).to(A.dtype), (wide(A).T @ wide(grad)).to(B.dtype)


class MatmulOfCastsDetached(MatmulOfCasts):
    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        return (wide(grad) @ wide(B.detach()).T).to(A.dtype), (wide(A).T @ wide(grad)).to(B.dtype)


class Gelu(torch.autograd.Function):
    """The terms of the second derivative, (2 - x^2) phi(x), are added in 16 bits, where they cancel."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.gelu(wide(x)).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(wide(x) * 0.5**0.5))
        density = torch.exp(-0.5 * wide(x) * wide(x)) * 0.3989422804014327
        return (wide(grad) * (cdf + wide(x) * density)).to(x.dtype)


class GeluLacksATerm(Gelu):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(wide(x) * 0.5**0.5))
        density = torch.exp(-0.5 * wide(x) * wide(x)).detach() * 0.3989422804014327
        return (wide(grad) * (cdf + wide(x) * density)).to(x.dtype)


class OnlyBfloat16(GeluLacksATerm):
    @staticmethod
    def forward(ctx, x):
        if x.dtype != torch.bfloat16:
            raise TypeError("bfloat16 only")
        return GeluLacksATerm.forward(ctx, x)


NARROW = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", NARROW)
def test_terms_that_autograd_adds_in_16_bits_are_right(dtype):
    inputs = {"A": seeded(16, 32).to(dtype), "B": seeded(32, 8).to(dtype)}
    require_left_alone(MatmulOfCasts, "double_backward", inputs, reference=er.matmul)
    require_caught(
        MatmulOfCastsDetached, "double_backward", inputs, "256 of 256 elements of grad_B violated", reference=er.matmul
    )


@pytest.mark.parametrize("dtype", NARROW)
def test_terms_that_cancel_in_16_bits_are_noted_where_the_kernel_is_right_in_float32(dtype):
    inputs = {"x": seeded(96).to(dtype)}
    row = require_left_alone(Gelu, "double_backward", inputs, Outcome.NOTED)
    assert "right in float32" in row.evidence
    require_caught(GeluLacksATerm, "double_backward", inputs, "of grad_x violated")
    row = row_of(Gelu, "double_backward", {"x": seeded(96)})
    assert row.outcome is Outcome.PASS, row


def test_a_kernel_of_one_16_bit_format_is_undecided_where_roundings_might_explain_it():
    report = report_of(
        OnlyBfloat16, "double_backward", {"x": seeded(96).bfloat16()}, reference=torch.nn.functional.gelu
    )
    (row,) = report.battery
    assert row.outcome is Outcome.UNDECIDED, row
    assert "bfloat16 only" in row.evidence


class TanhSavedBeforeItsCast(Tanh):
    """In float32 the saved tensor is the output itself; in 16 bits it is a constant to autograd."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(wide(x))
        ctx.save_for_backward(y)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return (wide(grad) * (1 - y * y)).to(grad.dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_what_autograd_does_not_find_in_16_bits_is_no_rounding(dtype):
    inputs = {"x": seeded(96).to(dtype)}
    require_caught(TanhSavedBeforeItsCast, "double_backward", inputs, "(None returned)", reference=torch.tanh)
    assert row_of(TanhSavedBeforeItsCast, "double_backward", {"x": seeded(96)}).outcome is Outcome.PASS
