"""Arithmetic of double-double numbers: enclosures contain the exact value and are 100 bits narrow."""

from __future__ import annotations

import operator

import flint
import pytest
import torch

from kernels_core.doubles import arithmetic
from kernels_core.doubles.error_free import two_product, two_sum
from kernels_core.doubles.number import exactly
from tests.core.doubles.containing import each, exact, moved, numbers, off, pairs, require_contains, special, uniform

NARROW = 2.0**-101
BINARY = {
    "add": (arithmetic.add, operator.add),
    "subtract": (arithmetic.subtract, operator.sub),
    "multiply": (arithmetic.multiply, operator.mul),
    "divide": (arithmetic.divide, operator.truediv),
}
UNARY = {
    "square": (arithmetic.square, lambda v: v * v),
    "sqrt": (arithmetic.sqrt, flint.arb.sqrt),
    "rsqrt": (arithmetic.rsqrt, flint.arb.rsqrt),
    "reciprocal": (arithmetic.reciprocal, lambda v: 1 / v),
    "cube": (lambda a: arithmetic.integer_power(a, 3), lambda v: v * v * v),
    "seventh power": (lambda a: arithmetic.integer_power(a, 7), lambda v: v**7),
}


@pytest.mark.parametrize("name", BINARY)
def test_results_contain_the_exact_value_and_are_narrow(name):
    ours, theirs = BINARY[name]
    a, b = numbers(uniform(0.1, 3)), numbers(uniform(-3, -0.1, seed=2), 3)
    widest, unknown = require_contains(ours(a, b), each(theirs, exact(a), exact(b)))
    assert unknown == 0
    assert widest < (NARROW if name in ("multiply", "divide") else 2.0**-90)


@pytest.mark.parametrize("name", UNARY)
def test_functions_contain_the_exact_value_and_are_narrow(name):
    ours, theirs = UNARY[name]
    a = numbers(uniform(0.01, 40))
    widest, unknown = require_contains(ours(a), each(theirs, exact(a)))
    assert unknown == 0
    assert widest < 2.0**-98


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("share", [2.0**-60, 2.0**-10, 0.4])
def test_radii_of_operands_are_carried(name, share):
    ours, theirs = BINARY[name]
    a, b = off(numbers(uniform(-3, 3)), share), off(numbers(uniform(-3, 3, seed=2), 3), share)
    require_contains(ours(a, b), each(theirs, moved(a), moved(b, 6)))


@pytest.mark.parametrize("name", [name for name in UNARY if name != "square"])
@pytest.mark.parametrize("share", [2.0**-60, 2.0**-10, 0.4])
def test_radii_of_one_operand_are_carried(name, share):
    ours, theirs = UNARY[name]
    a = off(numbers(uniform(0.1, 3)), share)
    require_contains(ours(a), each(theirs, moved(a)))


@pytest.mark.parametrize("name", BINARY)
def test_special_values_are_contained_or_unknown(name):
    ours, theirs = BINARY[name]
    first, second = pairs(special())
    require_contains(ours(exactly(first), exactly(second)), each(theirs, exact(exactly(first)), exact(exactly(second))))


@pytest.mark.parametrize("name", UNARY)
def test_special_operands_are_contained_or_unknown(name):
    ours, theirs = UNARY[name]
    require_contains(ours(exactly(special())), each(theirs, exact(exactly(special()))))


def test_cancelling_sums_are_contained_and_exact_where_nothing_is_rounded():
    a = uniform(1, 2)
    b = -a * (1 + 2.0**-40)
    found = arithmetic.add(exactly(a), exactly(b))
    require_contains(found, each(operator.add, exact(exactly(a)), exact(exactly(b))))
    zero = arithmetic.subtract(numbers(a), numbers(a))
    assert torch.equal(zero.hi, torch.zeros_like(a))
    assert float(arithmetic.add(exactly(a), exactly(-a)).rad.max()) == 0


def test_products_down_to_the_smallest_number_are_contained():
    scales = torch.tensor([2.0**k for k in range(-537, -440)], dtype=torch.float64)
    a, b = numbers(uniform(1, 2, 97) * scales), numbers(uniform(1, 2, 97, seed=4) * scales)
    require_contains(arithmetic.multiply(a, b), each(operator.mul, exact(a), exact(b)))
    require_contains(arithmetic.divide(a, arithmetic.reciprocal(b)), each(operator.mul, exact(a), exact(b)))


def test_transforms_are_error_free():
    a, b = uniform(-1e10, 1e10), uniform(-1, 1, seed=2)
    for ours, theirs in ((two_sum, operator.add), (two_product, operator.mul)):
        value, error = ours(a, b)
        together = each(operator.add, exact(exactly(value)), exact(exactly(error)))
        assert all(x == y for x, y in zip(together, each(theirs, exact(exactly(a)), exact(exactly(b))), strict=True))


def test_the_checker_finds_a_radius_that_is_too_small():
    a = numbers(uniform(0.1, 3))
    found = arithmetic.multiply(a, a)
    wrong = type(found)(found.hi, found.lo + found.hi * 2.0**-95, found.rad)
    with pytest.raises(AssertionError, match="is off"):
        require_contains(wrong, each(operator.mul, exact(a), exact(a)))
