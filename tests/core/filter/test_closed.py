"""A closed form grants what the steps that it stands for grant, and is taken back where it cannot class a value."""

import pytest
import torch
from torch.nn import functional

from kernels_core.filter import tiles
from kernels_core.filter.closed import closed
from kernels_core.filter.fusion import fused
from kernels_core.reference import Check, reference

CLOSED = {"closed.normalize", "closed.normalize_backward", "closed.normalize_weight"}


def layer(x, weight, bias):
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def without_bias(x, weight):
    return functional.layer_norm(x, x.shape[-1:], weight)


def over_two(x, weight, bias):
    return functional.layer_norm(x, x.shape[-2:], weight, bias)


def plain(x):
    return functional.layer_norm(x, x.shape[-1:])


def inputs_of(function):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 6, generator=generator) * 2 + 1
    shape = (4, 6) if function is over_two else (6,)
    more = {"weight": torch.randn(shape, generator=generator), "bias": torch.randn(shape, generator=generator)}
    return {"x": x} | {name: more[name] for name in function.__code__.co_varnames[1 : function.__code__.co_argcount]}


def names(check):
    return {step.name for step in closed(fused(check.joint)).steps}


def both_ways(function, inputs, upstream, monkeypatch, **options):
    found = []
    for change in (closed, lambda program: program):
        monkeypatch.setattr("kernels_core.filter.run.closed", change)
        found.append(Check(reference(function), inputs, **options).both([upstream]))
    return {name: (found[0][name], found[1][name]) for name in found[0]}


@pytest.mark.parametrize("elements", [12, 1 << 18])
@pytest.mark.parametrize("function", [layer, without_bias, over_two, plain])
@pytest.mark.parametrize(
    "profile", ["ieee", {"name": "ieee", "order": "pairwise"}, {"name": "ieee", "order": "sequential"}]
)
def test_a_closed_form_is_the_composition_of_its_steps(function, profile, elements, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", elements)
    inputs, upstream = inputs_of(function), torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
    for one, steps in both_ways(function, inputs, upstream, monkeypatch, profile=profile).values():
        ratio = one.enclosure.bound_or_zero() / steps.enclosure.bound_or_zero()
        assert (ratio > 1 - 1e-9).all(), ratio
        assert (ratio < 1 + 1e-6).all(), ratio
        assert ((one.enclosure.mid - steps.enclosure.mid).abs() <= one.rad_abs() + steps.rad_abs()).all()


@pytest.mark.parametrize(
    ("function", "expected"),
    [(layer, CLOSED), (without_bias, CLOSED), (over_two, CLOSED), (plain, {"closed.normalize_backward"})],
)
def test_norms_with_exact_operands_become_closed_forms(function, expected):
    assert names(Check(reference(function), inputs_of(function))) & CLOSED == expected


def test_a_norm_of_what_was_computed_keeps_its_steps():
    inputs = inputs_of(layer)
    assert not names(Check(reference(lambda x, weight, bias: layer(x * x, weight, bias)), inputs)) & CLOSED
    assert not names(Check(reference(lambda x, weight, bias: layer(x, weight.exp(), bias)), inputs)) & CLOSED - {
        "closed.normalize_weight"
    }


def test_a_value_that_others_read_keeps_the_steps_of_the_forward():
    def also_the_norm(x, weight, bias):
        y = functional.layer_norm(x, x.shape[-1:])
        return y * weight + bias, y

    assert "closed.normalize" not in names(Check(reference(also_the_norm), inputs_of(layer)))


@pytest.mark.parametrize("place", ["x", "weight", "upstream"])
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_infinities_and_nan_have_the_classes_that_the_steps_give_them(place, value, monkeypatch):
    inputs, upstream = inputs_of(layer), torch.randn(3, 4, 6)
    (upstream if place == "upstream" else inputs[place]).view(-1)[1] = value
    for one, steps in both_ways(layer, inputs, upstream, monkeypatch).values():
        assert torch.equal(one.enclosure.mid.nan_to_num(), steps.enclosure.mid.nan_to_num())
        assert torch.equal(one.enclosure.bound_or_zero(), steps.enclosure.bound_or_zero())


def test_what_is_exactly_zero_without_a_weight_and_without_gradients_is_admitted_alone():
    inputs, upstream = inputs_of(layer), torch.randn(3, 4, 6)
    inputs["weight"][2], inputs["bias"][2], upstream[..., 4] = 0, 0, 0
    found = Check(reference(layer), inputs).both([upstream])
    assert (found["output"].enclosure.bound_or_zero()[..., 2] == 0).all()
    assert found["grad_weight"].enclosure.bound_or_zero()[4] == 0
