"""float8 end to end: scales, gradients in float8, the exact tier, the battery; and the sharp bound of casts."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.autograd import Function

import exactref as er
from kernels_core.coverage import Element
from kernels_core.formats import FORMATS, Format, round_to_nearest
from kernels_core.profiles import PROFILES
from kernels_core.reference import Check
from kernels_core.report import Outcome

IEEE = PROFILES["ieee"]

FLOAT8 = FORMATS[4:]
each_float8 = pytest.mark.parametrize("fmt", FLOAT8, ids=lambda fmt: fmt.name)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Product8(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return (a.float() @ b.float()).to(torch.bfloat16)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return (g.float() @ b.float().t()).to(a.dtype), (a.float().t() @ g.float()).to(b.dtype)


@each_float8
def test_a_product_of_float8_is_covered_with_its_gradients_and_the_battery_runs(fmt: Format) -> None:
    a, b = normal(8, 16).to(fmt.dtype), normal(16, 4, seed=1).to(fmt.dtype)
    items = [
        "grad_output_layout",
        "shared_grad_output",
        "aliasing",
        "canaries",
        "unwritten",
        "determinism",
        "forward_mode",
    ]
    report = er.check(Product8, (a, b), battery=items)
    assert [row.verdict for row in report.tensors] == [er.Verdict.COVERED] * 3
    assert report.row("grad_a").dtype == fmt.name
    assert not [row for row in report.battery if row.outcome in (Outcome.FAIL, Outcome.UNDECIDED)]


@each_float8
def test_float8_results_that_are_not_finite_are_reported(fmt: Format) -> None:
    x = torch.tensor([1.0, torch.inf, torch.nan])
    report = er.check(lambda x: x.to(fmt.dtype), (x,), wrt=[])
    assert report.row("output").covered == 3


def quantized(x: torch.Tensor, dtype: torch.dtype, block: int) -> torch.Tensor:
    """Quantize with one scale per block, and back."""
    blocks = x.reshape(-1, block)
    scale = blocks.abs().amax(-1, keepdim=True) / torch.finfo(dtype).max
    return ((blocks / scale).to(dtype).float() * scale).reshape(x.shape)


@each_float8
@pytest.mark.parametrize("block", [8, 128], ids=["per block", "per tensor"])
def test_scales_around_a_cast_are_covered_and_a_wrong_rounding_is_not(fmt: Format, block: int) -> None:
    x = normal(16, 8)
    result = er.reference(lambda x: quantized(x, fmt.dtype, block))(x)
    assert result.covers(quantized(x, fmt.dtype, block)).all()
    blocks = x.reshape(-1, block)
    scale = blocks.abs().amax(-1, keepdim=True) / fmt.max_finite
    steps = (blocks / scale).double()
    truncated = round_to_nearest(steps, fmt)
    truncated = torch.where(truncated.abs() > steps.abs(), truncated * (1 - 2 * fmt.unit_roundoff), truncated)
    assert not result.covers((truncated.float() * scale).reshape(x.shape)).all()


@each_float8
def test_a_cast_of_exact_values_admits_the_nearest_value_alone(fmt: Format) -> None:
    x = normal(2000) * 4
    result = er.reference(lambda x: x.to(fmt.dtype))(x)
    nearest = x.to(fmt.dtype)
    assert result.covers(nearest).all()
    assert torch.equal(result.lower.float(), nearest.float())
    assert torch.equal(result.upper.float(), nearest.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cast_to_16_bit_grants_half_an_ulp_and_not_a_whole_one(dtype: torch.dtype) -> None:
    x = 1.9 + 0.05 * normal(4000)
    result = er.reference(lambda x: x.to(dtype))(x)
    assert result.covers(x.to(dtype)).all()
    truncated = (x.view(torch.int32) & (-1 << (16 if dtype is torch.bfloat16 else 13))).view(torch.float32).to(dtype)
    missed = (truncated != x.to(dtype)) & result.covers(truncated)
    assert int(missed.sum()) <= 4  # ties


def test_a_cast_that_pytorch_rounds_twice_is_covered() -> None:
    x = torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=torch.float64)
    result = er.reference(lambda x: x.to(torch.bfloat16))(x)
    assert result.covers(x.to(torch.bfloat16)).all()
    assert result.covers(torch.tensor([1 + 2.0**-7], dtype=torch.bfloat16)).all()


def test_a_cast_may_flush_under_a_profile_that_does_and_under_no_other() -> None:
    x = torch.tensor([2.0**-15, 2.0**-8])
    check = {
        flushes: Check(er.reference(lambda x: x.to(torch.float16)), {"x": x}, profile=profile)
        for flushes, profile in ((False, IEEE), (True, dataclasses.replace(IEEE, flush_subnormals=True)))
    }
    flushed = torch.tensor([0.0, 2.0**-8]).to(torch.float16)
    for flushes, one in check.items():
        assert one.outputs()["output"].covers(flushed).tolist() == [flushes, True]
        assert one.outputs()["output"].covers(x.half()).all()


def test_a_kernel_may_leave_out_a_cast_inside_but_not_its_saturation() -> None:
    x = torch.tensor([1.07, 447.0, 600.0])
    result = er.reference(lambda x: x.to(torch.float8_e4m3fn).float() * 2)(x)
    assert result.verdict(x * 2).tolist() == [Element.COVERED, Element.COVERED, Element.VIOLATED]
    assert result.verdict(torch.tensor([2.25, 896.0, 896.0])).tolist() == [Element.COVERED] * 3


def test_a_gradient_that_is_cast_on_its_way_does_not_saturate_unless_it_is_returned_so() -> None:
    x, grad = normal(4), torch.full((4,), 500.0)
    inner = er.reference(lambda x: (x.to(torch.float8_e4m3fn) * 1.0).float()).backward(x, grad)["grad_x"]
    assert inner.covers(grad).all()
    given = er.reference(lambda x: x.float()).backward(x.to(torch.float8_e4m3fn), grad)["grad_x"]
    assert given.covers(torch.full((4,), 448.0).to(torch.float8_e4m3fn)).all()


@each_float8
def test_the_exact_tier_evaluates_what_saturates(fmt: Format) -> None:
    x = torch.tensor([fmt.max_finite * 3, 1.0, -fmt.max_finite * 3], dtype=torch.float64)
    exact = er.reference(lambda x: x.to(fmt.dtype).double() + 1)(x).exact
    assert exact[1] == 2
    top = fmt.max_finite if fmt.saturates else 3 * fmt.max_finite
    assert exact[[0, 2]].tolist() == [top + 1, 1 - top]


def _faulty(damage, in_forward: bool) -> type[Function]:
    """Return a float8 product with a damaged output, or a damaged first gradient."""

    class Faulty(Product8):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            product = a.float() @ b.float()
            return (damage(product) if in_forward else product).to(torch.bfloat16)

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            gradient = g.float() @ b.float().t()
            return (gradient if in_forward else damage(gradient)).to(a.dtype), (a.float().t() @ g.float()).to(b.dtype)

    return Faulty


FAULTS = {
    "doubled": lambda t: t * 2,
    "reversed": lambda t: t.flip(-1),
    "shifted": lambda t: t.roll(1, 0),
    "zero": torch.zeros_like,
    "last row left": lambda t: torch.cat([t[:-1], torch.zeros_like(t[-1:])]),
    "NaN": lambda t: t / 0 * 0,
}


@each_float8
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_product_of_float8_is_diagnosed(fault: str, fmt: Format) -> None:
    """PyTorch neither compares nor moves 8-bit floats, which hypotheses about inputs and upstream gradients do."""
    a, b = normal(6, 6).to(fmt.dtype), normal(6, 6, seed=1).to(fmt.dtype)
    for in_forward in (True, False):
        report = er.check(_faulty(FAULTS[fault], in_forward), (a, b), reference=Product8)
        assert report.row("output" if in_forward else "grad_a").verdict is er.Verdict.VIOLATED


@each_float8
def test_a_wrong_gradient_for_a_float8_upstream_is_diagnosed(fmt: Format) -> None:

    class Ignored(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).to(fmt.dtype)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0]

    report = er.check(Ignored, (normal(6, 6),), reference=lambda x: (x * x).to(fmt.dtype))
    failure = report.row("grad_x").failure
    assert failure is not None
    assert any("grad_output ignored" in line for line in failure.diagnosis)
