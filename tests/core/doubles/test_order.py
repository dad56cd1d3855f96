"""Choices between double-double numbers: decided only where the radii allow it."""

from __future__ import annotations

import torch

from kernels_core.doubles import order
from kernels_core.doubles.number import DoubleDouble, exactly


def given(*rows: tuple[float, float, float]) -> DoubleDouble:
    return DoubleDouble(*(torch.tensor(part, dtype=torch.float64) for part in zip(*rows, strict=True)))


A = given((1.0, 0, 0), (1.0, 2.0**-60, 0), (1.0, 0, 2.0**-60), (1.0, 0, 0), (torch.nan, 0, 0), (1.0, 0, torch.inf))
B = given((1.0, 0, 0), (1.0, 0, 0), (1.0, 2.0**-61, 0), (2.0, 0, 0.5), (1.0, 0, 0), (9.0, 0, 0))


def test_comparisons_are_open_where_the_radii_meet():
    assert order.unordered(A, B).tolist() == [False, False, True, False, True, True]
    assert order.below(A, B).tolist()[:4] == [False, False, True, True]
    assert order.below(B, A).tolist()[:2] == [False, True]


def test_extrema_keep_low_parts_and_the_larger_radius():
    found = order.maximum(A, B)
    assert found.hi.tolist()[:4] == [1.0, 1.0, 1.0, 2.0]
    assert found.lo.tolist()[:4] == [0.0, 2.0**-60, 2.0**-61, 0.0]
    assert found.rad.tolist()[:4] == [0.0, 0.0, 2.0**-60, 0.5]
    assert found.hi[4].isnan()
    assert order.minimum(A, B).lo.tolist()[:3] == [0.0, 0.0, 0.0]


def test_the_largest_of_a_row_has_the_low_part_of_its_place():
    row = given((1.0, 0, 0), (3.0, 2.0**-60, 2.0**-90), (3.0, -(2.0**-60), 0), (2.0, 0, 0))
    found = order.largest(row, (0,))
    assert (float(found.hi), float(found.lo), float(found.rad)) == (3.0, 2.0**-60, 2.0**-90)


def test_signs_are_unknown_where_zero_is_within_the_radius():
    found = order.sign(given((0.0, 0, 0), (-2.0, 0, 1.0), (1.0, 0, 1.0)))
    assert found.hi.tolist()[:2] == [0.0, -1.0]
    assert found.rad.tolist() == [0.0, 0.0, torch.inf]


def test_absolute_values_turn_both_parts():
    found = order.absolute(DoubleDouble(torch.tensor(-1.0).double(), torch.tensor(2.0**-60).double(), torch.zeros(())))
    assert (float(found.hi), float(found.lo)) == (1.0, -(2.0**-60))
    assert torch.equal(
        order.nonnegative(exactly(torch.tensor([-1.0, 2.0]).double())).hi, torch.tensor([0.0, 2.0]).double()
    )
