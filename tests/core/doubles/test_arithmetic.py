"""Arithmetic of double-double numbers: enclosures contain the exact value and are 100 bits narrow."""

from __future__ import annotations

import operator

import flint
import pytest
import torch

from kernels_core.doubles import arithmetic
from kernels_core.doubles.error_free import fast_two_sum, split, two_product, two_sum
from kernels_core.doubles.number import DoubleDouble, exactly, is_zero
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


def neighbours(count: int = 3) -> tuple[DoubleDouble, DoubleDouble]:
    """Return pairs whose high parts cancel to a few ulps, about powers of two, with every extreme of low part."""
    near = [2.0**e * (1 + k * 2.0**-53) for e in (-1, 0, 1) for k in (-4, -3, -2, -1, 0, 2, 4)]
    shares = [-1.0, -0.999, -0.5, -(2.0**-40), 0.0, 2.0**-60, 0.5, 1.0]
    made = [(h, t * 2.0**-53 * h) for h in near for t in shares]
    made = [(h, t) for h, t in made if h + t == h]
    rows = [(h, t, -g, s) for h, t in made for g, s in made if abs(h - g) <= count * 2.0**-51]
    parts = torch.tensor(rows, dtype=torch.float64).T.contiguous()
    zero = torch.zeros((), dtype=torch.float64)
    return DoubleDouble(parts[0], parts[1], zero), DoubleDouble(parts[2], parts[3], zero)


def test_sums_that_cancel_to_a_few_ulps_are_contained_and_normalised():
    a, b = neighbours()
    found = arithmetic.add(a, b)
    require_contains(found, each(operator.add, exact(a), exact(b)))
    assert torch.equal(found.hi, found.hi + found.lo)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("operand", [0, 1])
def test_exact_operands_take_fewer_operations_and_are_contained(name, operand):
    ours, theirs = BINARY[name]
    a, b = numbers(uniform(0.1, 3)), numbers(uniform(-3, -0.1, seed=2), 3)
    pair = [exactly(a.hi) if operand == 0 else off(a, 2.0**-70), exactly(b.hi) if operand == 1 else off(b, 2.0**-70)]
    require_contains(ours(*pair), each(theirs, moved(pair[0]), moved(pair[1], 6)))


def test_a_row_times_a_column_is_contained():
    a, b = off(numbers(uniform(-3, 3, 12)), 2.0**-80), off(numbers(uniform(-3, 3, 9, seed=2), 3), 2.0**-60)
    for first, second in ((a, b), (b, a)):
        wide = first.each(lambda part: part.reshape(-1, 1))
        found = arithmetic.multiply(wide, second)
        n = len(second.hi)
        left, right = moved(first), moved(second, 6)
        require_contains(found, [x * y for x in left for y in right])
        assert found.shape == (len(left), n)


@pytest.mark.parametrize("power", [0.25, -0.5, 2.0, 1024.0])
def test_powers_of_two_scale_without_error(power):
    a, b = off(numbers(uniform(-3, 3)), 2.0**-70), exactly(torch.tensor(power, dtype=torch.float64))
    for ours, theirs in (BINARY["multiply"], BINARY["divide"]):
        found = ours(a, b)
        require_contains(found, each(lambda x, theirs=theirs: theirs(x, flint.arb(power)), moved(a)))
        assert float((found.rad / found.hi).abs().max()) < 2.0**-69
        assert is_zero(ours(exactly(a.hi), b).rad)


def test_products_of_exact_operands_are_exact_pairs():
    a, b = uniform(-9, 9), uniform(-9, 9, seed=2)
    found = arithmetic.multiply(exactly(a), exactly(b))
    assert is_zero(found.rad)
    require_contains(found, each(operator.mul, exact(exactly(a)), exact(exactly(b))))
    beyond = arithmetic.multiply(exactly(a * 2.0**600), exactly(b * 2.0**600))
    assert not bool((beyond.hi + beyond.lo).isfinite().any())


def test_halves_have_26_bits_each_and_add_up():
    edges = torch.tensor(
        [1 - 2.0**-53, 2 - 2.0**-52, 1 + 2.0**-26, 1 + 2.0**-27, 1 + 3 * 2.0**-27], dtype=torch.float64
    )
    a = torch.cat([uniform(-9, 9), edges, -edges, 5e-324 * torch.arange(1, 9), special()[:-3]])
    high, low = split(a)
    finite = high.isfinite()
    assert torch.equal((high + low)[finite], a[finite])
    for half in (high[finite], low[finite]):
        mantissa = half.frexp().mantissa * 2.0**26
        assert torch.equal(mantissa, mantissa.round())


def test_the_fast_sum_is_exact_for_multiples_of_the_smaller_unit():
    b = torch.cat([uniform(-2, 2, 500), torch.tensor([1.0, -1.0, 1 + 2.0**-52, 2 - 2.0**-52])])
    for multiple in (0.0, 1.0, -1.0, 3.0, -7.0, 2.0**30 + 1):
        a = multiple * 2.0**-52 * torch.exp2(b.abs().log2().floor())
        value, error = fast_two_sum(a, b)
        together = each(operator.add, exact(exactly(value)), exact(exactly(error)))
        assert together == each(operator.add, exact(exactly(a)), exact(exactly(b)))


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
