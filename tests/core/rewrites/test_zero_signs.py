"""The sign of a computed zero is free where an operation reads it, and certain where every implementation agrees."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import exactref as er
from kernels_core.coverage import Element

Tensor = torch.Tensor
F = torch.nn.functional
X = torch.tensor([-0.1, 0.1, -0.0, 0.0])
ONE = torch.ones(4)


def pole(x: Tensor) -> Tensor:
    return 1 / x


def signed(x: Tensor) -> Tensor:
    return torch.copysign(ONE, x)


EITHER: dict[str, tuple[Callable[[Tensor], Tensor], Element]] = {
    "copysign": (lambda x: signed(F.softshrink(x)), Element.COVERED),
    "signbit": (lambda x: F.softshrink(x).signbit(), Element.UNCONSTRAINED),
    "branch cut": (lambda x: torch.atan2(F.softshrink(x), -ONE), Element.UNCONSTRAINED),
    "pole": (lambda x: pole(F.softshrink(x)), Element.UNCONSTRAINED),
    "pole of a cube": (lambda x: F.softshrink(x) ** -3, Element.UNCONSTRAINED),
    "inverse root": (lambda x: torch.rsqrt(F.softshrink(x)), Element.UNCONSTRAINED),
    "sum of many": (lambda x: pole((x[:, None] * torch.zeros(3)).sum(-1)), Element.UNCONSTRAINED),
}
CERTAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "input": signed,
    "moved": lambda x: signed(x.flip(0).double()[None].clone().squeeze(0).float()),
    "scaled": lambda x: pole(-0.5 * x),
    "product": lambda x: pole(x * torch.zeros(4)),
    "sum of two": lambda x: signed(x + x.flip(0)),
    "clamped": lambda x: pole(x.clamp(-1, 1)),
    "square": lambda x: torch.rsqrt(x * x),
    "norm": lambda x: pole(torch.linalg.vector_norm(x[:, None], dim=-1)),
    "sum of moduli": lambda x: pole(x.abs()[:, None].sum(-1)),
    "difference from a square": lambda x: pole(x**2 - x),
    "count": lambda x: pole((x > 1).sum().to(torch.float32).expand(4)),
    "even power": lambda x: F.softshrink(x) ** -2,
}


@pytest.mark.parametrize("name", EITHER)
def test_a_computed_zero_may_have_either_sign(name: str) -> None:
    function, expected = EITHER[name]
    result, actual = er.reference(function)(X), function(X)
    other = ~actual if actual.dtype is torch.bool else -actual
    assert result.verdict(actual).tolist() == result.verdict(other).tolist() == [expected] * 4


@pytest.mark.parametrize("name", CERTAIN)
def test_the_sign_of_a_zero_that_is_given_or_cannot_be_negative_is_certain(name: str) -> None:
    function = CERTAIN[name]
    result, actual = er.reference(function)(X), function(X)
    assert result.covers(actual).all()
    assert (result.verdict(-actual) == Element.VIOLATED).all()


def test_a_zero_over_a_zero_of_either_sign_is_nan() -> None:
    result = er.reference(lambda x: (x * 0) / F.softshrink(x))(X)
    assert result.covers(torch.full((4,), torch.nan)).all()
    assert (result.verdict(ONE) == Element.VIOLATED).all()


def test_a_gradient_through_a_sign_that_is_free_covers_both_kernels() -> None:
    x, grad = torch.tensor([-0.1, 0.1, 2.0]), torch.ones(3)
    a = torch.tensor([3.0, -3.0, 3.0])
    found = er.reference(lambda a, x: torch.copysign(a, F.softshrink(x))).backward(a, x, grad)["grad_a"]
    assert found.covers(torch.tensor([1.0, -1.0, 1.0])).all()
    assert found.covers(torch.tensor([-1.0, 1.0, 1.0])).all()
    assert not found.covers(torch.tensor([2.0, 2.0, -1.0])).any()


def test_the_sign_of_a_computed_zero_is_free_in_float64_too() -> None:
    x = X.double()
    result = er.reference(lambda x: torch.copysign(torch.ones(4, dtype=torch.float64), F.softshrink(x)) * 0.1)(x)
    assert result.covers(torch.full((4,), 0.1, dtype=torch.float64)).all()
    assert result.covers(torch.full((4,), -0.1, dtype=torch.float64)).all()
