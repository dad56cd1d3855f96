"""Operations that FLINT evaluates element by element, and what is beyond the limit of their cost."""

from __future__ import annotations

import dataclasses

import flint
import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.doubles import by_element
from kernels_core.reference import reference

D = torch.float64
ULP = 2.0**-53  # of numbers between 1/2 and 1


def test_a_kernel_within_every_grant_is_not_violated_where_midpoints_cancel(limit):
    """The tanh of float64 is off by half an ulp one way and the kernel's by 5.49 of 5.5 ulp the other way.

    Around the midpoints, which are zero, the product of two such differences may move by 5.5^2 squared ulps, around the
    exact values by more: the kernel's 36 are right.
    """
    flint.ctx.prec = 100
    x = torch.atanh(torch.tensor(0.5000001, dtype=D)) + torch.arange(4000, dtype=D) * 1e-9
    here = torch.tanh(x)
    off = torch.tensor([float((flint.arb(v).tanh() - h) / ULP) for v, h in zip(x.tolist(), here.tolist(), strict=True)])
    place = int(off.argmin())
    assert off[place] < -0.5  # float64's midpoint is misrounded, or the test shows nothing
    point, value = x[place : place + 1], here[place : place + 1]

    def function(x, z, c, d):
        return (torch.tanh(x) - c) * (torch.tanh(z) - d), torch.special.i0(x)

    kernel = (value - 6 * ULP - value) * (value - 6 * ULP - value)
    product, _ = reference(function)(point, point.clone(), value, value.clone())
    assert int(product.verdict(kernel)) == Element.COVERED
    assert int(product.verdict(kernel * 1.5)) == Element.VIOLATED


@pytest.fixture(params=["within the limit", "beyond the limit"])
def limit(request, monkeypatch):
    if request.param == "beyond the limit":
        monkeypatch.setattr(by_element, "LARGEST_CONE", 0)


def test_what_costs_too_much_is_decided_by_float64(monkeypatch):
    x = torch.linspace(0.3, 4.0, 30, dtype=D)
    monkeypatch.setattr(by_element, "LARGEST_CONE", 29)
    result = reference(lambda a: torch.lgamma(a) * 3)(x)
    own = torch.lgamma(x) * 3
    assert float((result.rad_abs() / result.enclosure.bound).min()) > 0.1  # float64's own
    assert bool((result.verdict(own) == Element.COVERED).all())
    assert bool((dataclasses.replace(result, source=None).verdict(own * (1 + 2.0**-40)) == Element.VIOLATED)[1:].all())


def test_values_are_known_to_a_hundred_bits():
    x = torch.linspace(0.3, 4.0, 30, dtype=D)
    result = reference(torch.lgamma)(x)
    assert float((result.rad_abs() - result.enclosure.low.abs()).max()) < 2.0**-100
    values = [flint.arb(v).lgamma() for v in x.tolist()]
    pairs = zip(values, result.enclosure.mid.tolist(), result.enclosure.low.tolist(), strict=True)
    assert all(abs(value - hi - low) < 2.0**-100 for value, hi, low in pairs)


def test_an_index_that_roundings_may_change_leaves_what_it_takes_unknown_and_unflagged():
    """0.1 * 3 and 0.3 tie but for a rounding, so either may be the larger."""
    x = torch.tensor([[0.1, 0.3, 0.2]], dtype=D)
    factor = torch.tensor([[3.0, 1.0, 1.0]], dtype=D)
    top, place = reference(lambda a, b: torch.topk(a * b, 1))(x, factor)
    for taken in (0, 1):
        assert int(top.verdict((x * factor)[:, taken : taken + 1])) == Element.COVERED
        assert int(place.verdict(torch.tensor([[taken]]))) == Element.UNCONSTRAINED


@pytest.mark.parametrize("value", [0.3, 2.5, -1.75])
def test_roundings_to_integers_are_decided_by_rationals_where_operands_are_exact(value):
    x = torch.tensor([value], dtype=D)
    (result,) = [reference(lambda a: torch.remainder(a, 0.25) + torch.floor(a / 0.5))(x)]
    assert int(result.verdict(torch.remainder(x, 0.25) + torch.floor(x / 0.5))) == Element.COVERED
