"""Comparisons have three values: certain, certainly not, and unsure where roundings decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.coverage import Element
from tests.core.rules.checker import check_special, evaluate

ORDERS: dict[str, Callable[..., Any]] = {
    "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "eq": torch.eq, "ne": torch.ne,
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_comparison_of_exact_values_is_decided(name: str) -> None:
    values = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, 1.0 + 2**-23])
    x, y = values.repeat_interleave(len(values)), values.repeat(len(values))
    check_special(ORDERS[name], [x, y], decided=1.0, gradient=False)


@pytest.mark.parametrize("name", ORDERS)
def test_comparison_that_a_rounding_may_flip_is_unsure(name: str) -> None:
    x = torch.tensor([1.0, 1.0, 1.0])
    y = torch.tensor([0.1 * 3, 0.2, 0.4])
    (result,), (actual,) = evaluate(lambda x, y: ORDERS[name](x * 0.1 * 3, y), [x, y], gradient=False)
    assert result.verdict(actual).tolist() == [Element.UNCONSTRAINED, Element.COVERED, Element.COVERED]
    assert result.verdict(~actual).tolist() == [Element.UNCONSTRAINED, Element.VIOLATED, Element.VIOLATED]


def test_certain_false_decides_a_conjunction() -> None:
    x = torch.tensor([1.0])

    def function(x: torch.Tensor) -> Any:
        unsure = x * 0.1 * 3 < 0.3
        return unsure & (x > 2), unsure | (x < 2), unsure ^ (x < 2), ~unsure

    results, actuals = evaluate(function, [x], gradient=False)
    found = [int(result.verdict(actual)) for result, actual in zip(results, actuals, strict=True)]
    assert found == [Element.COVERED, Element.COVERED, Element.UNCONSTRAINED, Element.UNCONSTRAINED]


def test_classes_of_numbers_are_decided() -> None:
    values = torch.tensor([math.inf, -math.inf, math.nan, 0.0, 1e-45, 3e38])

    def classes(x: torch.Tensor) -> Any:
        return x.isnan(), x.isinf(), x.isfinite(), x.signbit(), x.isposinf(), x.isneginf()

    check_special(classes, [values], decided=1.0, gradient=False)
