"""Activations and their derivatives keep the contract of a rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels_core.check import Check
from kernels_core.reference import reference
from tests.core.rules.checker import check_rule, check_special

SMOOTH: dict[str, Callable[..., Any]] = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus beta": lambda x: F.softplus(x, 3.3, 2.5),
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
}
KINKED: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "hardtanh": lambda x: F.hardtanh(x, -0.7, 1.1),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.3, -2.0),
}
ALL = {**SMOOTH, **KINKED}


def _inputs(rows: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 6, generator=generator) * torch.tensor([0.01, 0.3, 1.0, 1.0, 3.0, 6.0])


@pytest.mark.parametrize("name", ALL)
def test_activation_keeps_the_contract(name: str) -> None:
    check_rule(ALL[name], [_inputs()], caught=0.5, eager=name != "sigmoid")  # its float16 derivative rounds on the way


@pytest.mark.parametrize("name", ALL)
def test_activation_of_a_rounded_argument_keeps_the_contract(name: str) -> None:
    inputs = [_inputs(), torch.linspace(0.3, 1.7, 240).reshape(40, 6)]
    check_rule(lambda x, w: ALL[name](x * w), inputs, caught=0.4, eager=False)


@pytest.mark.parametrize("name", ALL)
def test_activation_of_special_values_is_decided(name: str) -> None:
    special = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-40, -1e-40, 1e-45, 90.0, -90.0, 3e37, -3e38, 20.0, -120.0]
    check_special(ALL[name], [torch.tensor(special)], dtypes=(torch.float32, torch.bfloat16))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (1, 1)])
@pytest.mark.parametrize("name", ["gelu", "silu", "softplus", "logsigmoid", "relu"])
def test_activation_of_few_elements_is_covered(name: str, shape: tuple[int, ...]) -> None:
    check_rule(ALL[name], [torch.full(shape, 0.7)], (torch.float32,))


@pytest.mark.parametrize("then", [lambda y: y.sum(0), lambda y: y.sum(0).exp()], ids=["exact", "rounded"])
@pytest.mark.parametrize("name", SMOOTH)
def test_upstream_gradient_that_is_broadcast_is_taken(name: str, then: Callable[..., Any]) -> None:
    x = torch.linspace(-1.0, 1.0, 15).reshape(5, 3)
    leaf = x.clone().requires_grad_()
    grad = torch.tensor([1.5, -0.25, 2.0])
    then(SMOOTH[name](leaf)).backward(grad)
    found = reference(lambda x: then(SMOOTH[name](x))).backward(x, grad)["grad_x"]
    assert bool(found.covers(leaf.grad).all())


@pytest.mark.parametrize("function", [F.softplus, lambda x: F.logsigmoid(-x), torch.sigmoid, F.silu, F.mish])
def test_a_flushed_exponential_is_granted_before_a_large_upstream_gradient_meets_it(function: Any) -> None:
    x = torch.linspace(-104, -80, 64)
    check = Check(reference(lambda x: function(x)), {"x": x})
    leaf = x.clone().requires_grad_()
    for size in (1.0, -1e10):
        upstream = torch.full((64,), size)
        (gradient,) = torch.autograd.grad(function(leaf), leaf, upstream)
        found = check.both([upstream])["grad_x"]
        assert found.covers(gradient).all()
        flushed = torch.where(x < -87.4, 0.0, gradient)
        assert found.covers(flushed).all()
        assert not found.covers(torch.where(x > -86, 0.0, gradient)).all()


def test_mish_is_bounded_wherever_it_is_finite() -> None:
    x = torch.cat([torch.logspace(0, 38, 39), -torch.logspace(0, 38, 39)])
    check, leaf = Check(reference(F.mish), {"input": x}), x.clone().requires_grad_()
    output = F.mish(leaf)
    (gradient,) = torch.autograd.grad(output, leaf, torch.ones(78))
    found = check.both([torch.ones(78)])
    assert found["output"].covers(output.detach()).all()
    assert found["grad_input"].covers(gradient).all()
    assert not found["output"].covers(output.detach() * (1 + 2.0**-18))[:39].any()
    assert not found["grad_input"].covers(gradient * 2)[:6].any()
