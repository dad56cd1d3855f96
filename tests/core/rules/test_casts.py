"""Casts to integers: certain where the format holds the integer, unsure where what happens is undefined."""

from __future__ import annotations

import math

import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference


def test_cast_of_a_number_that_the_integers_do_not_reach_is_unsure() -> None:
    x = torch.tensor([127.9, -128.9, 128.0, 1e30, math.inf, math.nan])
    result = reference(lambda x: x.to(torch.int8))(x)
    same = result.verdict(torch.tensor([127, -128, -128, 0, -1, 5], dtype=torch.int8))
    assert same.tolist() == [Element.COVERED] * 2 + [Element.UNCONSTRAINED] * 4
    assert result.verdict(torch.full((6,), 1, dtype=torch.int8))[:2].tolist() == [Element.VIOLATED] * 2
