"""The normal distribution in double-double: contained, narrow in both tails, and never that of another operand."""

from __future__ import annotations

import types

import flint
import pytest

from kernels_core.doubles import activations
from kernels_core.doubles.normal import distribution
from kernels_core.doubles.number import exactly
from kernels_core.enclosure import Enclosure
from tests.core.doubles.containing import each, exact, moved, numbers, off, require_contains, special, uniform

arb = flint.arb


def share_below(x: arb) -> arb:
    return (-x / arb(2).sqrt()).erfc() / 2


def bell(x: arb) -> arb:
    return (-x * x / 2).exp()


@pytest.mark.parametrize("reach", [1e-9, 1.0, 8.0])
def test_both_parts_are_contained_to_95_bits(reach):
    x = numbers(uniform(-reach, reach, 400))
    for found, theirs in zip(distribution(x), (share_below, bell), strict=True):
        widest, unknown = require_contains(found, each(theirs, exact(x)))
        assert unknown == 0
        assert widest < 2.0**-95


@pytest.mark.parametrize("reach", [37.0, 45.0, 1e3])
def test_far_tails_are_contained(reach):
    x = numbers(uniform(-reach, reach, 300))
    for found, theirs in zip(distribution(x), (share_below, bell), strict=True):
        _, unknown = require_contains(found, each(theirs, exact(x)))
        assert unknown == 0


def test_special_operands_are_contained_or_unknown():
    x = exactly(special())
    for found, theirs in zip(distribution(x), (share_below, bell), strict=True):
        require_contains(found, each(theirs, exact(x)))


@pytest.mark.parametrize("share", [2.0**-70, 2.0**-31, 2.0**-4])
def test_radii_are_carried(share):
    x = off(numbers(uniform(-8, 8)), share)
    for found, theirs in zip(distribution(x), (share_below, bell), strict=True):
        require_contains(found, each(theirs, moved(x)))


def test_what_is_kept_belongs_to_the_operand():
    call = types.SimpleNamespace(local=types.SimpleNamespace(arithmetic=types.SimpleNamespace(kept={})))
    first = Enclosure(uniform(-3, 3))
    found = activations._normal(call, first)
    assert activations._normal(call, first) is not None
    assert activations._normal(call, first)[0] is found[0]
    with_radius = Enclosure(first.mid, None, None, None, first.mid.abs() * 2.0**-40)
    moved_x = activations._normal(call, with_radius)[0]
    assert float(moved_x.rad.min()) > float(found[0].rad.max())
    for seed in range(5):  # memory is used again: an operand is told by its tensor, not by its address
        x = Enclosure(uniform(-3, 3, seed=seed))
        phi = activations._normal(call, x)[0]
        require_contains(phi, each(share_below, exact(exactly(x.mid))))
        del x
