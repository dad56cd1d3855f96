"""Elementary functions of double-double numbers: contained, narrow, and unknown rather than wrong."""

from __future__ import annotations

import math

import flint
import pytest
import torch

from kernels_core.doubles import arithmetic, functions
from kernels_core.doubles.number import exactly, number
from tests.core.doubles.containing import each, exact, flat, moved, numbers, off, require_contains, special, uniform

arb = flint.arb
# name: (FLINT's, interval where the value is far from zero)
FUNCTIONS = {
    "exp": (arb.exp, (-50, 50)),
    "exp2": (lambda v: arb(2) ** v, (-50, 50)),
    "expm1": (arb.expm1, (-1, 1)),
    "sigmoid": (lambda v: 1 / (1 + (-v).exp()), (-40, 40)),
    "tanh": (arb.tanh, (-5, 5)),
    "sinh": (arb.sinh, (-4, 4)),
    "cosh": (arb.cosh, (-4, 4)),
    "softplus": (lambda v: v.exp().log1p(), (-30, 30)),
    "log": (arb.log, (1.5, 1e5)),
    "log2": (lambda v: v.log() / arb(2).log(), (1.5, 1e5)),
    "log10": (lambda v: v.log() / arb(10).log(), (1.5, 1e5)),
    "log1p": (arb.log1p, (-0.9, 3)),
    "sin": (arb.sin, (-1.5, 1.5)),
    "cos": (arb.cos, (-1.5, 1.5)),
    "tan": (arb.tan, (-1.5, 1.5)),
    "atan": (arb.atan, (-3, 3)),
    "erf": (arb.erf, (-3, 3)),
    "erfc": (arb.erfc, (-3, 12)),
}
WIDER = {"exp": (-800, 720), "log": (0, 2), "sin": (-1e5, 1e5), "cos": (-100, 100), "tan": (-50, 50), "erf": (-12, 12),
         "erfc": (-30, 30), "expm1": (-800, 720), "log1p": (-1, 1e10), "tanh": (-400, 400), "sigmoid": (-800, 800),
         "atan": (-1e8, 1e8), "softplus": (-800, 800), "sinh": (-700, 700), "cosh": (-700, 700), "log2": (0, 2),
         "log10": (0, 2), "exp2": (-1100, 1030)}  # fmt: skip


def ours(name):
    return getattr(functions, name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_contained_to_95_bits(name):
    theirs, (low, high) = FUNCTIONS[name]
    x = numbers(uniform(low, high, 300))
    widest, unknown = require_contains(ours(name)(x), each(theirs, exact(x)))
    assert unknown == 0
    assert widest < 2.0**-95


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wide_arguments_are_contained_or_unknown(name):
    theirs = FUNCTIONS[name][0]
    x = numbers(uniform(*WIDER[name], 300))
    require_contains(ours(name)(x), each(theirs, exact(x)))
    require_contains(ours(name)(exactly(special())), each(theirs, exact(exactly(special()))))


@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "sinh", "sin", "tan", "atan", "erf"])
@pytest.mark.parametrize("size", [1e-3, 1e-9, 1e-200])
def test_small_values_keep_their_relative_accuracy(name, size):
    theirs = FUNCTIONS[name][0]
    x = exactly(uniform(-size, size))
    widest, unknown = require_contains(ours(name)(x), each(theirs, exact(x)))
    assert unknown == 0
    assert widest < 2.0**-95


@pytest.mark.parametrize("name", ["expm1", "sin", "cos", "atan", "erf", "erfc"])
@pytest.mark.parametrize("size", [1e-240, 1e-300, 1e-320])
def test_values_whose_products_underflow_are_contained(name, size):
    theirs = FUNCTIONS[name][0]
    x = exactly(uniform(-size, size))
    _, unknown = require_contains(ours(name)(x), each(theirs, exact(x)))
    assert unknown == 0


def test_logarithms_keep_their_relative_accuracy_beside_one():
    x = exactly(1 + torch.arange(-40, 40, dtype=torch.float64) * 2.0**-52)
    widest, unknown = require_contains(functions.log(x), each(arb.log, exact(x)))
    assert unknown == 0
    assert widest < 2.0**-95


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("share", [2.0**-70, 2.0**-31, 2.0**-4])
def test_radii_of_arguments_are_carried(name, share):
    theirs, (low, high) = FUNCTIONS[name]
    x = off(numbers(uniform(low, high)), share)
    require_contains(ours(name)(x), each(theirs, moved(x)))


def test_powers_are_contained():
    x, y = numbers(uniform(0.01, 30)), numbers(uniform(-9, 9, seed=2), 3)
    widest, unknown = require_contains(functions.power(x, y), each(lambda a, b: a**b, exact(x), exact(y)))
    assert unknown == 0
    assert widest < 2.0**-92


def test_exponentials_of_certain_infinities_are_certain():
    found = functions.exp(exactly(torch.tensor([-math.inf, -1000.0], dtype=torch.float64)))
    assert flat(found.hi, found) == [0.0, 0.0]
    assert flat(found.rad, found) == [0.0, 5e-324]


def test_exponentials_of_what_has_overflowed_are_not_certain():
    square = arithmetic.multiply(exactly(torch.tensor([1e200], dtype=torch.float64)), number(-1e200))
    found = functions.exp(square)
    assert not bool((found.hi + found.lo + found.rad == 0).any())
