"""The decision at its edges: what lies on the bound, beyond it, at infinity and where nothing is known."""

from __future__ import annotations

import math

import pytest
import torch

from kernels_core.coverage import Element, Figures, decide
from kernels_core.enclosure import Enclosure
from kernels_core.exact.tier import Budget

INF, NAN = math.inf, math.nan


def decided(actual, mid, bound, dtype=torch.float32, rad=0.0):
    enclosure = Enclosure(torch.tensor([mid], dtype=torch.float64), torch.tensor([bound], dtype=torch.float64))
    return Element(int(decide(torch.tensor([actual], dtype=dtype), enclosure, rad, None, Budget())[0]))


@pytest.mark.parametrize(
    ("actual", "mid", "bound", "expected"),
    [
        (1.0, 1.0, 0.0, Element.COVERED),
        (1.25, 1.0, 0.25, Element.UNDECIDED),  # exactly on the bound: float64 leaves that to the exact tier
        (1.25, 1.0, 0.2500001, Element.COVERED),
        (1.25, 1.0, 0.2499, Element.VIOLATED),
        (-0.0, 0.0, 0.0, Element.COVERED),
        (NAN, 1.0, 0.5, Element.VIOLATED),
        (1.0, NAN, 0.0, Element.VIOLATED),
        (NAN, NAN, 0.0, Element.COVERED),
        (INF, INF, 0.0, Element.COVERED),
        (-INF, INF, 0.0, Element.VIOLATED),
        (3e38, INF, 0.0, Element.VIOLATED),
        (INF, 1.0, 0.5, Element.VIOLATED),
        (INF, 1e39, 1e32, Element.COVERED),
        (3.4e38, 1e39, 1e32, Element.VIOLATED),
        (INF, 3.4028235e38, 2.1e31, Element.COVERED),
        (INF, 3.4028235e38, 1e31, Element.VIOLATED),  # rounds to the largest value: the bound has that rounding
        (INF, 3.40e38, 1e31, Element.VIOLATED),
        (1.0, 0.0, INF, Element.UNCONSTRAINED),
        (NAN, NAN, INF, Element.UNCONSTRAINED),
        (NAN, 1.0, INF, Element.UNCONSTRAINED),
        (1.0, 0.0, 1e39, Element.UNCONSTRAINED),
        (INF, INF, INF, Element.COVERED),  # finite but beyond float64: no narrower format holds it
        (1.0, INF, INF, Element.VIOLATED),
    ],
)
def test_decision(actual, mid, bound, expected):
    assert decided(actual, mid, bound) is expected


def test_a_bound_that_just_reaches_both_ends_of_a_format_admits_everything():
    given = {"mid": 0.0, "dtype": torch.float8_e4m3fn}
    assert decided(448.0, bound=448.0, **given) is Element.UNCONSTRAINED
    assert decided(448.0, bound=447.0, **given) is Element.VIOLATED


def test_our_own_uncertainty_is_never_shown_as_covered():
    assert decided(1.2, 1.0, 0.25, rad=0.0) is Element.COVERED
    assert decided(1.2, 1.0, 0.25, rad=0.5) is Element.UNDECIDED


def test_empty_tensors_are_decided():
    assert decide(torch.ones(0, 3), Enclosure(torch.ones(0, 3, dtype=torch.float64)), 0.0, None, Budget()).shape == (
        0,
        3,
    )


def test_figures_change_no_verdict():
    draw = torch.Generator().manual_seed(0)
    special = torch.tensor([0.0, -0.0, 1.0, 1e-45, 3.4e38, INF, -INF, NAN], dtype=torch.float64)
    mid = special.repeat_interleave(64 * 8)
    bound = special.abs().repeat_interleave(64).repeat(8) * torch.rand(mid.shape, generator=draw, dtype=torch.float64)
    steps = torch.tensor([0.0, 0.5, 0.99, 0.9995, 1.0, 1.0001, 2.0, NAN], dtype=torch.float64)
    actual = (mid + steps.repeat(len(mid) // len(steps)) * bound).to(torch.float32)
    for low in range(0, len(mid), 64):
        part = slice(low, low + 64)
        enclosure = Enclosure(mid[part], bound[part])
        for rad in (0.0, 2.0**-26, torch.full((64,), 1e-9, dtype=torch.float64)):
            figures = Figures()
            assert torch.equal(
                decide(actual[part], enclosure, rad, None, Budget()),
                decide(actual[part], enclosure, rad, None, Budget(), figures),
            )
