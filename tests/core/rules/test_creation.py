"""Constants grant the rounding of what the format cannot hold, and no more."""

from __future__ import annotations

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference
from tests.core.rules.checker import check_rule

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("value", [0.1, 0.5, 3, -1e-40, float("inf"), float("nan")])
def test_constants_are_covered_and_tight(value: float) -> None:
    check_rule(lambda x: torch.full_like(x, value), [X], gradient=False)
    check_rule(lambda x: x.new_full((2,), value), [X], gradient=False)


def test_ranges_are_covered() -> None:
    check_rule(lambda x: x[0] + torch.arange(4, dtype=x.dtype), [X], gradient=False)
    check_rule(lambda x: torch.arange(0.1, 2, 0.3, dtype=x.dtype), [X], gradient=False)
    check_rule(lambda x: torch.linspace(-1, 2, 7, dtype=x.dtype), [X], caught=0.0, gradient=False)
    check_rule(
        lambda x: torch.eye(3, dtype=x.dtype) + torch.ones(3, dtype=x.dtype) + torch.zeros(3, dtype=x.dtype),
        [X],
        gradient=False,
    )


def test_a_constant_that_the_format_holds_grants_nothing() -> None:
    result = reference(lambda x: torch.full_like(x, 0.5))(X)
    assert bool((result.verdict(torch.full_like(X, 0.5 + 2**-24)) == Element.VIOLATED).all())


def test_memory_that_nothing_has_written_is_unconstrained() -> None:
    result = reference(lambda x: torch.empty_like(x))(X)
    assert bool((result.verdict(X) == Element.UNCONSTRAINED).all())
