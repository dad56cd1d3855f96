"""Tables of Taylor polynomials and the reductions before them: contained where their bounds are used up."""

from __future__ import annotations

import flint
import pytest
import torch

from kernels_core.doubles import functions, normal
from kernels_core.doubles.number import DoubleDouble, exactly
from kernels_core.doubles.taylor import tabulate
from tests.core.doubles.containing import each, exact, moved, numbers, off, require_contains, uniform

arb = flint.arb
TABLES = {
    "exp": (functions._exp_table, arb.exp, (-0.35, 0.35)),
    "expm1": (functions._expm1_table, arb.expm1, (-0.35, 0.35)),
    "sin": (functions._sine_table, arb.sin, (-0.8, 0.8)),
    "atan": (functions._atan_table, arb.atan, (-1, 1)),
    "erf": (functions._erf_table, arb.erf, (-9, 9)),
    "erfcx": (functions._erfcx_table, lambda v: (v * v).exp() * v.erfc(), (0, 27)),
    "mills": (normal._mills_table, lambda v: (v * v / 2).exp() * (v / arb(2).sqrt()).erfc() / 2, (0, 38)),
}


def edges(table, low, high):
    """Return the ends of the steps, where the terms left out weigh most."""
    places = torch.linspace(low / table.step, high / table.step, 60, dtype=torch.float64).round()
    return torch.cat([(places + 0.5) * table.step, (places - 0.5) * table.step])


@pytest.mark.parametrize("name", TABLES)
def test_values_at_the_ends_of_steps_are_contained(name):
    made, theirs, (low, high) = TABLES[name]
    table = made()
    for x in (numbers(edges(table, low, high)), exactly(edges(table, low, high)), numbers(uniform(low, high))):
        inside = (x.hi >= low) & (x.hi <= high)
        x = DoubleDouble(x.hi[inside], x.lo if x.lo.dim() == 0 else x.lo[inside], x.rad)
        require_contains(table(x), each(theirs, exact(x)))
        wide = off(x, table.step * 2.0**-30)
        _, unknown = require_contains(table(wide), each(theirs, moved(wide)))
        assert unknown == 0


@pytest.mark.parametrize("name", TABLES)
def test_single_numbers_are_those_of_tensors(name):
    made, _, (low, high) = TABLES[name]
    x = numbers(uniform(low, high, 20))
    together = made()(x)
    for place in range(20):
        one = made()(x.each(lambda part, place=place: part[place]))
        assert float(one.hi) == float(together.hi[place])
        assert float(one.lo) == float(together.lo[place])


def test_only_levels_whose_coefficients_dominate_are_added_up_fast():
    assert all(functions._exp_table().ordered)
    assert not all(functions._sine_table().ordered)


def test_a_function_that_vanishes_between_centres_has_no_share():
    table = tabulate([lambda s: s.exp() - arb(4) / 3], 2.0**-4, 0, 16)
    assert table.share is None
    x = numbers(uniform(0, 1))
    require_contains(table(x), each(lambda v: v.exp() - arb(4) / 3, exact(x)))


@pytest.mark.parametrize("reach", [0.4, 3.0, 700.0, 1e6])
@pytest.mark.parametrize("constant", [flint.arb.const_log2, functions._half_pi])
def test_multiples_of_a_constant_are_taken_away_to_a_hundred_bits(reach, constant):
    x = numbers(uniform(-reach, reach, 400))
    count = (x.hi / float(constant().mid())).round()
    found = functions._reduced(x, count, constant)
    rest = [v - arb(k) * constant() for v, k in zip(exact(x), count.tolist(), strict=True)]
    _, unknown = require_contains(found, rest)
    assert unknown == 0
    assert float((found.rad / (count.abs() + 1)).max()) < 2.0**-102
    assert torch.equal(found.hi, found.hi + found.lo)
    first, second, _, _ = functions._parts(constant)
    assert all((part * 2.0**70).is_integer() for part in (first, second))


def test_reductions_are_contained_next_to_half_multiples():
    halves = (torch.arange(-40, 40, dtype=torch.float64) + 0.5) * 0.6931471805599453
    x = numbers(torch.cat([halves * (1 + k * 2.0**-52) for k in (-2, -1, 0, 1, 2)]))
    found = functions.exp(x)
    widest, unknown = require_contains(found, each(arb.exp, exact(x)))
    assert unknown == 0
    assert widest < 2.0**-95
