"""Integer, boolean and mixed dtypes: integers are exact, and what a rounding decides is never called violated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import exactref as er
from kernels_core.coverage import Element
from kernels_core.exact.numbers import Numbers
from kernels_core.exact.tier import Budget, Cone

Tensor = torch.Tensor
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
ROUNDED: dict[str, Callable[[Tensor], Any]] = {
    "sort": lambda x: torch.sort(x, -1).indices,
    "max": lambda x: x.max(-1).indices,
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(0),
    "topk": lambda x: torch.topk(x, 5, -1).indices,
    "cummax": lambda x: torch.cummax(x, -1).indices,
    "kthvalue": lambda x: torch.kthvalue(x, 3, -1).indices,
    "median": lambda x: torch.median(x, -1).indices,
    "max_pool": lambda x: torch.nn.functional.max_pool1d(x, 4, return_indices=True)[1],
    "threshold": lambda x: x > 1.1,
    "count": lambda x: torch.count_nonzero(x > 1.1, -1),
    "quantize": lambda x: torch.round(x * 40).to(torch.int8),
    "truncate": lambda x: (x * 40).to(torch.int32),
}


def colliding(seed: int, dtype: torch.dtype) -> Tensor:
    """Return values of which many round to the same one."""
    spread = 0.2 if dtype is torch.bfloat16 else 0.02
    return 1 + torch.rand(4, 32, generator=torch.Generator().manual_seed(seed)) * spread


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ROUNDED)
def test_integers_that_hang_on_a_16_bit_rounding_are_not_violated_with_it_or_without(name, dtype):
    x, operation = colliding(0, dtype), ROUNDED[name]
    result = er.reference(lambda x: operation(x.to(dtype)))(x)
    for kernel in (operation(x.to(dtype)), operation(x)):
        assert not (result.verdict(kernel) == Element.VIOLATED).any()


WRONG: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "argmax": (lambda x: x.argmax(-1), lambda x: x.argmin(-1)),
    "quantize": (
        lambda x: torch.clamp(torch.round(x.float() / 0.037), -128, 127).to(torch.int8),
        lambda x: torch.clamp(torch.floor(x.float() / 0.037), -128, 127).to(torch.int8),
    ),
    "dynamic quantize": (
        lambda x: torch.round(x.float() / (x.float().abs().amax(-1, keepdim=True) / 127)).to(torch.int8),
        lambda x: torch.trunc(x.float() / (x.float().abs().amax(-1, keepdim=True) / 127)).to(torch.int8),
    ),
    "mask": (lambda x: x > 0.3, lambda x: x <= 0.3),
    "count": (lambda x: torch.count_nonzero(torch.relu(x), -1), lambda x: torch.count_nonzero(x, -1)),
    "one hot": (
        lambda x: torch.nn.functional.one_hot(x.argmax(-1), 16),
        lambda x: torch.nn.functional.one_hot(x.argmin(-1), 16),
    ),
}


@each_dtype
@pytest.mark.parametrize("name", WRONG)
def test_right_integers_are_covered_and_wrong_ones_violated(name, dtype):
    right, wrong = WRONG[name]
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    result = er.reference(right)(x)
    assert result.covers(right(x)).all()
    assert (result.verdict(wrong(x)) == Element.VIOLATED).any()
    assert torch.equal(result.verdict(wrong(x)) == Element.VIOLATED, right(x) != wrong(x))


@each_dtype
def test_an_embedding_with_float32_weights_and_integer_indices_is_covered(dtype):
    weight, index = torch.randn(16, 8), torch.tensor([3, 0, 3, 15])
    result = er.reference(lambda index, weight: torch.nn.functional.embedding(index, weight).to(dtype))(index, weight)
    assert result.covers(weight[index].to(dtype)).all()
    assert not result.covers(weight[index + (index < 15).long()].to(dtype)).all(-1)[:3].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_norm_with_float32_weights_and_16_bit_activations_has_gradients_of_both_dtypes(dtype):
    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5)
            return (x.float() * scale * weight).to(x.dtype)

        @staticmethod
        def backward(ctx, g):
            x, weight = ctx.saved_tensors
            wide, g = x.float(), g.float()
            scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
            along = (g * weight * wide).mean(-1, keepdim=True) * scale**2
            return ((g * weight - wide * along) * scale).to(x.dtype), (g * wide * scale).sum(0)

    x, weight = torch.randn(6, 32).to(dtype), torch.randn(32)
    report = er.check(Norm, (x, weight), battery="none")
    assert [(row.name, row.dtype, row.verdict) for row in report.tensors] == [
        ("output", str(dtype)[6:], er.Verdict.COVERED),
        ("grad_x", str(dtype)[6:], er.Verdict.COVERED),
        ("grad_weight", "float32", er.Verdict.COVERED),
    ]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=str)
def test_shifts_drop_the_bits_beyond_the_dtype(dtype):
    def packed(q: Tensor) -> Tensor:
        return torch.stack(
            [(q[::2] & 15) | (q[1::2] << 4), torch.bitwise_right_shift(q[::2], 1), q[1::2] << (q[::2] & 7)]
        )

    q = torch.tensor([1, 15, 7, 100, 3, 9], dtype=dtype)
    result = er.reference(packed)(q)
    assert result.covers(packed(q)).all()
    assert not result.covers(packed(q) + 1).any()
    source = er.reference(lambda q: packed(q).float() * 0.5)(q).source
    cone = Cone(source.program, source.name, torch.arange(9).numpy(), source.inputs, source.integers, Budget())
    assert [int(v.p) / int(v.q) for v in cone.evaluate(Numbers(None))] == (packed(q).float() * 0.5).reshape(-1).tolist()


def test_an_index_that_a_tie_leaves_free_may_be_any_of_the_tied_ones():
    x = torch.tensor([[1.0, 2.0, 2.0, 0.0]])
    for operation in (lambda x: torch.topk(x, 1).indices, lambda x: x.sort(-1).indices[:, -1:]):
        for index in (1, 2):
            assert er.reference(operation)(x).verdict(torch.tensor([[index]])).item() != Element.VIOLATED


def quantize(x: Tensor, scale: Tensor) -> Tensor:
    return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)


@pytest.mark.parametrize("battery", ["none", "all"])
def test_nothing_is_differentiated_where_no_output_is_floating(battery):
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    report = er.check(quantize, (x, torch.tensor(0.05)), reference=quantize, battery=battery)
    assert [row.name for row in report.tensors] == ["output"]
    assert report.verdict is er.Verdict.COVERED
    assert "no gradients: no output is floating" in report.notes
    assert er.reference(quantize).backward(x, torch.tensor(0.05), ()) == {}


BESIDE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda x, s: s * x,
    "sum": lambda x, s: x + s,
    "quotient": lambda x, s: s / x,
    "maximum": torch.maximum,
    "clamp": lambda x, s: x.clamp(min=s),
    "where": lambda x, s: torch.where(x > 0, x, s),
    "comparison": lambda x, s: x > s,
    "power": lambda x, s: x.abs() ** s,
    "addcmul": lambda x, s: torch.addcmul(x, x, s),
    "masked_fill": lambda x, s: x.masked_fill(x > 0, s),
    "fill": lambda x, s: torch.empty_like(x).fill_(s),
    "assignment": lambda x, s: x.clone().index_fill(0, torch.tensor([1]), s),
    "constant": lambda x, s: x + torch.full((), 0.7, dtype=s.dtype),
}


@pytest.mark.parametrize("wide", [torch.float64, torch.float32], ids=str)
@each_dtype
@pytest.mark.parametrize("name", BESIDE)
def test_a_wider_scalar_beside_a_tensor_may_be_rounded_to_its_dtype(name: str, dtype: torch.dtype, wide: torch.dtype):
    """PyTorch casts it, since it does not widen the result; its own kernels were violated."""
    if wide == dtype:
        return
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)).to(dtype)
    scalar, function = torch.tensor(0.7001, dtype=wide), BESIDE[name]
    assert torch.result_type(x, scalar) == dtype
    result = er.reference(function)(x, scalar)
    assert result.covers(function(x, scalar)).all()
    wrong = function(x, scalar * (1 + 2.0 ** -(3 if dtype is torch.bfloat16 else 6)))
    assert name in ("comparison", "constant") or (result.verdict(wrong) == Element.VIOLATED).any()


INTEGERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda x, n: x + n,
    "product": lambda x, n: x * n,
    "quotient": lambda x, n: n / (x.abs() + 1),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "scalar": lambda x, n: x + n[1],
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_beside_a_tensor_may_be_rounded_to_its_dtype(name: str, dtype: torch.dtype):
    """257 is no bfloat16: PyTorch's own sum with positions was violated."""
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)).to(dtype)
    function, step = INTEGERS[name], 257 if dtype is torch.bfloat16 else 37
    numbers = torch.arange(64) * step
    result = er.reference(function)(x, numbers)
    assert result.covers(function(x, numbers)).all()
    assert (result.verdict(function(x, numbers + step)) == Element.VIOLATED).any()


def test_a_scalar_beside_a_narrower_one_is_not_rounded():
    result = er.reference(lambda x, s: x * s)(torch.tensor(0.7).bfloat16(), torch.tensor(0.7001))
    assert not result.covers(torch.tensor(0.7).bfloat16().float() * torch.tensor(0.7001).bfloat16().float()).any()
