"""nextafter: exact on given values, nothing known of computed ones."""

from __future__ import annotations

import torch

from kernels_core.coverage import Element
from tests.core.rules.checker import check_rule, evaluate


def test_nextafter_of_given_values_is_exact() -> None:
    x, y = torch.tensor([1.0, -1.0, 0.0, 2.5]), torch.tensor([2.0, 5.0, -1.0, 2.5])
    check_rule(lambda x, y: torch.nextafter(x, y), [x, y], [torch.float32], gradient=False, planted_ulp=1.0, caught=1.0)


def test_nextafter_of_a_computed_value_is_not_covered() -> None:
    x, y = torch.rand(5), torch.rand(5)
    (result,), (actual,) = evaluate(lambda x, y: torch.nextafter(x * y, y), [x, y], gradient=False)
    assert bool((result.verdict(actual) == Element.UNCONSTRAINED).all())
