"""Float64 reductions along a dimension of size zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference

EMPTY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda a: a.softmax(1),
    "log_softmax": lambda a: a.log_softmax(1),
    "logsumexp": lambda a: a.logsumexp(1),
    "sort": lambda a: a.sort(1).values,
}


@pytest.mark.parametrize("name", EMPTY)
def test_rows_without_elements_are_covered(name):
    empty = torch.zeros((3, 0), dtype=torch.float64)
    result = reference(EMPTY[name])
    assert (result(empty).verdict(EMPTY[name](empty)) == Element.COVERED).all()
    assert result.backward(empty, EMPTY[name](empty))["grad_a"].enclosure.shape == (3, 0)
