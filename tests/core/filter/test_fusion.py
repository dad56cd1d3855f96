"""A fused step grants what the operations that it stands for grant, no less and no more."""

import pytest
import torch
from torch.nn import functional

from kernels_core.filter.fusion import fused
from kernels_core.filter.run import run_filter
from kernels_core.formats import format_of, ulp
from kernels_core.profiles import PROFILES
from kernels_core.reference import Check, reference

IEEE = PROFILES["ieee"]


def layer(x, weight, bias):
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def group(x):
    return functional.group_norm(x, 2)


def batch(x):
    return functional.batch_norm(x, None, None, training=True)


def of_rounded(x):
    return functional.instance_norm(x * x)


def inputs_of(function, dtype, scale=1.0, offset=0.0):
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5) * scale + offset
    given = {"x": x} if function is not layer else {"x": x, "weight": torch.randn(5), "bias": torch.randn(5)}
    return {name: tensor.to(dtype) for name, tensor in given.items()}


def both_ways(function, inputs, monkeypatch):
    upstream = torch.randn(inputs["x"].shape).to(inputs["x"].dtype)
    found = []
    for change in (fused, lambda program: program):
        monkeypatch.setattr("kernels_core.filter.run.fused", change)
        found.append(Check(reference(function), inputs).both([upstream]))
    return [(found[0][name], found[1][name]) for name in found[0]]


def names(function, inputs):
    return [step.name for step in fused(Check(reference(function), inputs).joint).steps]


@pytest.mark.parametrize("function", [layer, group, batch, of_rounded])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-3, 100.0), (1e4, 0.0)])
def test_a_fused_normalisation_is_the_composition_of_its_operations(function, dtype, scale, offset, monkeypatch):
    inputs = inputs_of(function, dtype, scale, offset)
    assert {"fused.normalize", "fused.normalize_backward"} <= set(names(function, inputs))
    for one, plain in both_ways(function, inputs, monkeypatch):
        a, b = one.enclosure, plain.enclosure
        certain = b.bound_or_zero().isfinite()
        assert torch.equal(certain, a.bound_or_zero().isfinite())
        ratio = (a.bound_or_zero() / b.bound_or_zero())[certain]
        assert (ratio > 1 - 1e-9).all(), ratio
        near = ratio < 1.01  # Minkowski's inequality is the only difference, but that may reach another rounding
        one_more = b.bound_or_zero() + ulp(b.mid, format_of(dtype))
        assert (near | (a.bound_or_zero() < one_more)[certain]).all(), ratio
        assert int((~near).sum()) <= (ratio.numel() // 10 if dtype is torch.bfloat16 else 0)
        assert ((a.mid - b.mid).abs() <= one.rad_abs() + plain.rad_abs())[certain].all()


def test_a_row_with_an_infinity_or_nan_is_nan_for_certain():
    inputs = inputs_of(layer, torch.float32)
    inputs["x"][0, 0, 0], inputs["x"][1, 1, 1] = torch.inf, torch.nan
    upstream = torch.randn(4, 6, 5)
    upstream[2, 2, 2] = torch.inf
    found = Check(reference(layer), inputs).both([upstream])
    output = found["output"].enclosure
    hit = torch.zeros(4, 6, dtype=torch.bool)
    hit[0, 0] = hit[1, 1] = True
    assert torch.equal(output.mid.isnan().all(-1), hit)
    assert (output.bound_or_zero()[hit] == 0).all()
    gradient = found["grad_x"].enclosure
    hit[2, 2] = True
    assert torch.equal(gradient.mid.isnan().all(-1), hit)
    assert (gradient.bound_or_zero()[hit] == 0).all()


def test_a_constant_row_without_epsilon_is_not_constrained():
    x = torch.ones(2, 4)
    found = Check(reference(lambda x: functional.layer_norm(x, (4,), eps=0.0)), {"x": x}).both([torch.randn(2, 4)])
    assert found["output"].enclosure.bound_or_zero().isinf().all()
    assert found["grad_x"].enclosure.bound_or_zero().isinf().all()


def test_a_norm_written_in_another_way_keeps_its_steps():
    def own(x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5)

    assert not any(name.startswith("fused.") for name in names(own, {"x": torch.randn(3, 4)}))


def test_a_norm_in_a_narrow_format_keeps_the_rounding_of_every_operation():
    def own(x):
        centred = x - x.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)

    assert "fused.normalize" in names(own, {"x": torch.randn(3, 4)})
    assert "fused.normalize" not in names(own, {"x": torch.randn(3, 4).bfloat16()})


def test_steps_that_others_read_stay_beside_the_fused_one():
    def own(x):
        centred = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        return centred * rstd, rstd, centred

    check = Check(reference(own), {"x": torch.randn(3, 4)})
    found = run_filter(check.forward, check.tensors, IEEE).enclosures
    assert {"fused.normalize", "aten.sub.Tensor", "aten.rsqrt.default"} <= set(
        step.name for step in fused(check.forward).steps
    )
    assert list(found) == ["output[0]", "output[1]", "output[2]"]
