"""References that write a usual function as a formula: kernels that know the function are covered, wrong ones not."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.reference import reference
from kernels_core.rewrites.usual_functions import in_usual_functions
from kernels_core.tracing.trace import trace

Tensor = torch.Tensor


def logistic(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def from_logistic(x: Tensor) -> Tensor:
    y = logistic(x)
    return y * (1 - y)


def elu_of_exp(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.exp(x) - 1)


def from_elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0, elu_of_exp(x) + 1)


def tanh_of_exp(x: Tensor) -> Tensor:
    return (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1)


def from_tanh(x: Tensor) -> Tensor:
    return 1 - torch.tanh(x) ** 2


def from_silu(x: Tensor) -> Tensor:
    y = logistic(x)
    return y * (1 + x * (1 - y))


FORMULAS = {
    "1/(1+e^-x)": (logistic, from_logistic),
    "reciprocal": (lambda x: (torch.ones_like(x) + (-x).exp()).reciprocal(), from_logistic),
    "power": (lambda x: (1 + (-x).exp()) ** -1, from_logistic),
    "e^x/(1+e^x)": (lambda x: x.exp() / (x.exp() + 1), from_logistic),
    "x/(1+e^-x)": (lambda x: x / (1 + torch.exp(-x)), from_silu),
    "elu by exp": (elu_of_exp, from_elu),
    "elu": (lambda x: functional.elu(x), from_elu),
    "quotient": (tanh_of_exp, from_tanh),
    "2 sigmoid - 1": (lambda x: 2 * torch.sigmoid(2 * x) - 1, from_tanh),
    "2/(1+e^-2x) - 1": (lambda x: 2 / (1 + torch.exp(-2 * x)) - 1, from_tanh),
    "1 - 2/(e^2x+1)": (lambda x: 1 - 2 / (torch.exp(2 * x) + 1), from_tanh),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_derivative_from_the_result_is_covered_and_a_wrong_one_is_not(name: str, dtype: torch.dtype) -> None:
    function, slope = FORMULAS[name]
    x = torch.linspace(-12, 12, 2001).to(dtype)
    grad = torch.linspace(-2, 3, 2001).to(dtype)
    result = reference(function).backward(x, grad)["grad_x"]
    exact_input = x.float()
    right = (grad.float() * slope(exact_input)).to(dtype)
    assert result.covers(right).all()
    moderate = (x.abs() < 2) & (slope(exact_input).abs() > 0.2) & (grad.abs() > 0.1)
    wrong = (right.float() * (1.001 if dtype is torch.float32 else 1.1)).to(dtype)
    assert (result.verdict(wrong)[moderate] == Element.VIOLATED).all()


def test_the_tangent_and_the_second_order_have_the_same_grants() -> None:
    x, t = torch.linspace(-12, 12, 501), torch.linspace(-1, 2, 501)
    y = logistic(x)
    ref = reference(logistic)
    assert ref.jvp(x, tangents={"x": t})["tangent_output"].covers(t * y * (1 - y)).all()
    second = ref.double_backward(x, torch.ones_like(x), {"grad_x": t})["grad_x"]
    assert second.covers(t * y * (1 - y) * (1 - 2 * y)).all()
    assert not second.covers(t * y * (1 - y) * (1 - 2.001 * y)).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 1 / (2 + torch.exp(-x)),
        lambda x: torch.exp(x) - 2,
        lambda x: 3 * torch.sigmoid(x) - 1,
        lambda x: (torch.exp(2 * x) - 1) / (torch.exp(x) + 1),
        lambda x: 1 / (1 + torch.exp(-x.double())).float(),
        torch.nn.functional.softplus,
        lambda x: torch.tanh(x),
    ],
)
def test_other_formulas_stay_what_they_are(function) -> None:
    x = torch.linspace(-2, 2, 9)
    program = trace(lambda x: function(x), {"x": x})
    rewritten = in_usual_functions(program)
    if rewritten is not None:  # part of it is a usual function: the same values then
        given = {"x": x.double()}
        assert torch.allclose(rewritten.run(given)["output"], program.run(given)["output"], rtol=1e-7, atol=1e-7)
    else:
        assert "expm1" not in {step.name for step in program.steps}


def test_the_rewritten_program_is_the_same_function() -> None:
    x = torch.linspace(-12, 12, 401, dtype=torch.float64)
    for function, _ in FORMULAS.values():
        program = trace(function, {"x": x})
        rewritten = in_usual_functions(program)
        assert rewritten is not None
        assert torch.allclose(rewritten.run({"x": x})["output"], program.run({"x": x})["output"], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("upstream", [1.0, 1e10])
def test_the_gradient_of_logaddexp_may_be_formed_by_a_sigmoid(upstream: float) -> None:
    x, y = 40 * torch.randn(
        2, 400, generator=torch.Generator().manual_seed(4)
    )  # where the quotient and the sigmoid are 0

    def gradient(factor: float) -> Tensor:
        return upstream * torch.sigmoid(x - y) * factor

    leaf = x.clone().requires_grad_()
    (pytorchs,) = torch.autograd.grad(torch.logaddexp(leaf, y), leaf, torch.full((400,), upstream))
    check = Check(reference(torch.logaddexp), {"input": x, "other": y})
    found = check.both([torch.full((400,), upstream)])["grad_input"]
    flushed = torch.where(x - y < -87.4, 0.0, gradient(1.0))
    for value in (pytorchs, gradient(1.0), flushed):
        assert found.covers(value).all()
    assert not found.covers(gradient(1 + 2.0**-15))[x - y > -70].any()
