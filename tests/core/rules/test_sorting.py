"""Order statistics: certain positions keep their bound and index, crossing ones are unsure."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference
from tests.core.rules.checker import check_rule, check_special
from tests.core.rules.test_movement import special

X = torch.randn(4, 7, generator=torch.Generator().manual_seed(3))
FUNCTIONS: dict[str, Any] = {
    "sort": lambda x: x.sort(0, descending=True).values,
    "stable sort": lambda x: torch.sort(x, dim=1, stable=True),
    "topk": lambda x: x.topk(3, 1).values,
    "smallest": lambda x: x.topk(2, 0, largest=False).values,
    "kthvalue": lambda x: x.kthvalue(2, 1, keepdim=True).values,
    "median": lambda x: x.median(1).values,
    "nanmedian": lambda x: x.nanmedian(0).values,
    "mode": lambda x: torch.mode(x, 1).values,
    "sort of roundings": lambda x: (x * 1.1 + 0.3).sort(1).values,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sorting_keeps_the_contract(name: str) -> None:
    check_rule(FUNCTIONS[name], [X], caught=0.0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sorting_carries_special_values(name: str) -> None:
    check_special(FUNCTIONS[name], [special(X)], gradient=False, decided=0.0)


def test_sorted_values_and_indices_of_separate_numbers_are_certain() -> None:
    check_rule(lambda x: x.sort(0, descending=True), [X], (torch.float32,), caught=0.0)
    check_rule(lambda x: x.topk(3, 1), [X], (torch.float32,), caught=0.0)


def test_values_closer_than_their_bounds_have_unsure_indices_and_close_values() -> None:
    x = torch.tensor([1.0, 1.0 + 2**-23, 5.0])
    values, order = reference(lambda x: (x * 1.1).sort())(x)
    assert order.verdict(torch.tensor([1, 0, 2])).tolist() == [
        Element.UNCONSTRAINED,
        Element.UNCONSTRAINED,
        Element.COVERED,
    ]
    assert bool(values.covers((x * 1.1).sort().values).all())
    assert values.verdict(torch.tensor([1.1, 1.2, 5.5])).tolist()[1] == Element.VIOLATED


def test_places_among_boundaries_are_unsure_where_a_rounding_decides() -> None:
    boundaries = torch.tensor([1.0, 2.0, 3.0])
    result = reference(lambda x: torch.bucketize(x * 1.1, boundaries))(torch.tensor([1.0, 2.0 / 1.1]))
    assert result.verdict(torch.tensor([1, 1])).tolist() == [Element.COVERED, Element.UNCONSTRAINED]
