"""References: the documented example, errors that name the mistake, stored outputs and declared backwards."""

from __future__ import annotations

import pytest
import torch

import exactref as er
from kernels_core.errors import TraceError, UsageError
from kernels_core.reference import reference


class MyMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        ctx.save_for_backward(A, B)
        return A @ B

    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        return grad @ B.T, A.T @ grad


class HalfMatmul(MyMatmul):
    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        return (grad.half() @ B.half().T).float(), A.T @ grad


@pytest.mark.parametrize(("function", "right"), [(MyMatmul, True), (HalfMatmul, False)])
def test_the_documented_example_gives_the_documented_answers(function, right):
    A, B, grad = torch.randn(16, 32), torch.randn(32, 8), torch.randn(16, 8)
    A_, B_ = A.clone().requires_grad_(), B.clone().requires_grad_()
    function.apply(A_, B_).backward(grad)
    g = er.matmul.backward(A, B, grad)
    assert g["grad_A"].covers(A_.grad).all().item() is right
    assert g["grad_B"].covers(B_.grad).all().item() is True


def test_covers_has_the_shape_and_type_of_a_mask():
    covered = reference(torch.tanh)(torch.ones(2, 3)).covers(torch.tanh(torch.ones(2, 3)))
    assert covered.dtype is torch.bool
    assert covered.shape == (2, 3)


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (torch.ones(3, 2), r"expected shape \[2, 3\], got \[3, 2\]"),
        (torch.ones(2, 3, dtype=torch.float64), "expected dtype float32, got float64"),
        (1.0, "expected a tensor, got float"),
    ],
)
def test_covers_refuses_what_is_not_the_kernels_result(actual, message):
    with pytest.raises(UsageError, match=message):
        reference(torch.tanh)(torch.ones(2, 3)).covers(actual)


def test_lower_and_upper_are_the_outermost_covered_values():
    x = torch.tensor([0.3, -0.7, 1e-3])
    result = reference(lambda x: x * x)(x)
    below = torch.nextafter(result.lower, torch.tensor(-torch.inf))
    above = torch.nextafter(result.upper, torch.tensor(torch.inf))
    assert result.covers(result.lower).all()
    assert result.covers(result.upper).all()
    assert not result.covers(below).any()
    assert not result.covers(above).any()


def test_exact_is_correctly_rounded():
    x = torch.tensor([0.1, 3.0], dtype=torch.float64)
    exact = reference(lambda x: (x + 1e-17) - x)(x).exact
    assert exact.tolist() == [1e-17, 1e-17]


def test_a_declared_backward_that_cannot_be_called_is_named():
    def softmax_backward(grad):
        return grad

    declared = reference(lambda x: x.softmax(-1), backward=softmax_backward)
    with pytest.raises(TraceError, match=r"^the declared backward softmax_backward cannot be traced: TypeError: .*\n"
                       r"it is f\(inputs, outputs, grads\), made of PyTorch operations on tensors$"):  # fmt: skip
        declared.backward(torch.randn(2, 3), torch.randn(2, 3))["grad_x"]


def test_a_reference_without_a_tensor_is_named():
    def nothing(x):
        x * 2

    with pytest.raises(TraceError, match=r"^the reference nothing returned no tensor\nreturn one, or"):
        reference(nothing)(torch.randn(3))


@pytest.mark.parametrize("differentiated", [False, True])
def test_a_reference_that_writes_to_a_tensor_of_its_own_is_told_so(differentiated):
    state = torch.zeros(3)

    def counts(x):
        return state.copy_(x.detach()) * 0 + x

    with pytest.raises(
        TraceError, match=r"counts cannot be traced: it writes to a tensor that is none of its inputs\n"
    ):
        reference(counts).backward(torch.randn(3), torch.randn(3)) if differentiated else reference(counts)(
            torch.randn(3)
        )


def test_inputs_that_are_no_tensors_are_named_where_nothing_comes_back():
    with pytest.raises(TraceError, match=r"^the reference <lambda> returned no tensor\nnone was given: x='normall'$"):
        reference(lambda x: x * 2)("normall")


def test_sparse_inputs_are_refused():
    with pytest.raises(UsageError, match=r"^x: sparse tensors are not supported\ngive values and indices as inputs"):
        reference(lambda x: x.to_dense())(torch.eye(3).to_sparse())


def test_sparse_tensors_in_a_reference_are_refused_as_such():
    with pytest.raises(TraceError, match=r"_to_sparse.* has no rule .*\nsparse tensors are not supported: "):
        reference(lambda x: (2 * x).to_sparse())(torch.randn(3))


def test_a_declared_backward_with_another_value_is_refused():
    wrong = reference(lambda x: x * x, backward=lambda inputs, outputs, grads: (3 * inputs[0] * grads[0],))
    with pytest.raises(TraceError, match="is not the derivative of the reference"):
        wrong.backward(torch.ones(3), torch.ones(3))


def test_a_surrogate_may_differ_from_the_derivative():
    straight = reference(torch.round, backward=lambda inputs, outputs, grads: (grads[0] * 1.0,), surrogate=True)
    assert straight.backward(torch.rand(3), torch.ones(3))["grad_input"].covers(torch.ones(3)).all()


def test_upstream_gradients_must_fit_the_outputs():
    with pytest.raises(UsageError, match="grad_output: expected shape"):
        reference(lambda x: x * x).backward(torch.ones(3), torch.ones(4))
    with pytest.raises(UsageError, match="expected 1 upstream gradients"):
        reference(lambda x: x * x).backward(torch.ones(3), (torch.ones(3), torch.ones(3)))


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(UsageError, match='did you mean "ieee"'):
        reference(lambda x: x * x).backward(torch.ones(3), torch.ones(3), profile="iee")
    with pytest.raises(UsageError, match='did you mean "weight"'):
        reference(lambda weight: weight * 2).backward(torch.ones(3), torch.ones(3), wrt=["wieght"])
    with pytest.raises(AttributeError, match='did you mean "flash"'):
        er.attention.flsh  # noqa: B018
