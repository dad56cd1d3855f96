"""Numbers beyond float64 stay beyond every narrower format in products and sums, as long as no factor is too small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.filter.overflow import smallest_factor
from kernels_core.inputs.exhaustive import all_values
from kernels_core.reference import reference

Tensor = torch.Tensor
X = torch.tensor([800.0, 1.0, 1e30, 3.0])  # the first and the third overflow
OVERFLOW = torch.tensor([True, False, True, False])


def verdicts(function: Callable[..., Any], value: Tensor, *inputs: Tensor) -> Tensor:
    check = Check(reference(function), dict(zip("xy", inputs, strict=False)))
    return check.outputs()["output"].verdict(value)


FORMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float]] = {
    "product": (lambda x, y: torch.exp(x) * y, torch.inf),
    "negative": (lambda x, y: -torch.exp(x) * y, -torch.inf),
    "sum": (lambda x, y: torch.exp(x) * 0.5 + y, torch.inf),
    "difference": (lambda x, y: y - torch.exp(x), -torch.inf),
    "bfloat16": (lambda x, y: (torch.exp(x).bfloat16() * y.bfloat16()).float(), torch.inf),
}


@pytest.mark.parametrize("name", FORMS)
def test_overflow_is_an_infinity_of_the_right_sign_and_nothing_else(name: str) -> None:
    form, infinity = FORMS[name]

    def function(x: Tensor, y: Tensor) -> Tensor:
        return form(x, y)

    y = torch.full((4,), 0.25)
    right = torch.where(OVERFLOW, infinity, form(X, y))
    assert (verdicts(function, right, X, y) == Element.COVERED).all()
    for wrong in (-infinity, torch.nan, 3e38, 0.0):
        found = verdicts(function, torch.where(OVERFLOW, wrong, right), X, y)
        assert ((found == Element.VIOLATED) == OVERFLOW).all()


def test_a_factor_that_may_be_small_leaves_it_open() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.exp(x) * y

    y = torch.tensor([2.0**-70, 1.0, 2.0**-63, 1.0])
    found = verdicts(function, function(X, y), X, y)
    assert found.tolist() == [Element.UNCONSTRAINED, Element.COVERED, Element.COVERED, Element.COVERED]


def test_many_products_need_larger_factors() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(89):
            x = x * y
        return x

    program = Check(reference(function), {"x": X, "y": X}).forward
    assert smallest_factor(program) == 2.0**-10


@pytest.mark.parametrize("function", [torch.exp, torch.expm1, torch.cosh, torch.exp2, torch.nn.functional.gelu])
def test_every_value_of_bfloat16_is_decided_forward_and_backward(function: Any) -> None:
    x = all_values(torch.bfloat16)
    check = Check(reference(lambda x: function(x)), {"x": x})
    leaf = x.clone().requires_grad_()
    output = function(leaf)
    (gradient,) = torch.autograd.grad(output, leaf, torch.ones_like(output))
    for name, value in (("output", output.detach()), ("grad_x", gradient)):
        found = check.both([torch.ones_like(output)])[name].verdict(value)
        assert not ((found == Element.UNDECIDED) | (found == Element.UNCONSTRAINED)).any()
