"""Every entry of docs/findings.md is still proved: PyTorch's result lies outside the admissible set."""

from __future__ import annotations

import fractions

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.formats import FORMATS
from kernels_core.reference import reference
from kernels_core.report import Outcome
from kernels_core.verify import verify


def layer_norm(x):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],))


def seeded(*shape, scale=1.0, offset=0.0):
    return offset + scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


FORWARDS = {
    "log_softmax in bfloat16": (lambda x: torch.log_softmax(x, -1), torch.tensor([[0.0] * 16 + [8.375]]).bfloat16()),
    "softmax in bfloat16 along another dimension": (lambda x: torch.softmax(x, 0), seeded(17, 200, scale=3).bfloat16()),
    "prod in bfloat16": (lambda x: x.prod(-1), torch.tensor([1.0078125] * 32).bfloat16()),
    "erf in bfloat16 near 0": (torch.erf, torch.tensor([3e-7] * 16).bfloat16()),
    "layer norm of large values": (layer_norm, torch.tensor([[1e30, -1e30, 3e30, 0.0]])),
    "fmod where the quotient overflows": (lambda x: torch.fmod(x, 1e-37), torch.full((16,), -80.0)),
    "logit in bfloat16 near one half": (torch.logit, torch.tensor([0.498046875]).bfloat16()),
    "entr in bfloat16": (torch.special.entr, torch.tensor([0.8515625]).bfloat16()),
    "i0e in bfloat16": (torch.special.i0e, torch.tensor([4.03125]).bfloat16()),
    "rsqrt in float16": (torch.rsqrt, torch.tensor([0.44384765625]).half()),
    "soft_margin_loss beyond a margin of 88": (
        lambda x: torch.nn.functional.soft_margin_loss(x, torch.full((16,), -1.0)),
        torch.full((16,), 100.0),
    ),
    "binary cross entropy of a soft target": (
        lambda x: torch.nn.functional.binary_cross_entropy_with_logits(x, x.new_full((16,), 1e-6), reduction="none"),
        torch.full((16,), -1000.0),
    ),
    "sinh below the largest value": (torch.sinh, torch.full((16,), 89.0)),
    "i0 below the largest value": (torch.special.i0, torch.full((16,), 90.0)),
    "hardswish near the largest value": (torch.nn.functional.hardswish, torch.tensor([3e38])),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_finding_in_a_forward_is_violated(name):
    function, x = FORWARDS[name]
    assert (reference(function)(x).verdict(function(x)) == Element.VIOLATED).any()


GRADIENTS = {
    "layer norm in bfloat16": (layer_norm, (seeded(1, 64, offset=100).bfloat16(),)),
    "asinh at large arguments": (torch.asinh, (torch.tensor([1e30]),)),
    "acosh at large arguments": (torch.acosh, (torch.tensor([1e30]),)),
    "hardsigmoid in float64": (torch.nn.functional.hardsigmoid, (torch.tensor([0.5], dtype=torch.float64),)),
    "atan2 at tiny arguments": (torch.atan2, (torch.tensor([1e-20]), torch.tensor([1e-21]))),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_finding_in_a_gradient_is_violated(name):
    function, inputs = GRADIENTS[name]
    leaves = [t.clone().requires_grad_() for t in inputs]
    output = function(*leaves)
    upstream = seeded(*output.shape).to(output.dtype)
    output.backward(upstream)
    results = reference(function).backward(*inputs, upstream).values()
    assert any((r.verdict(t.grad) == Element.VIOLATED).any() for r, t in zip(results, leaves, strict=True))


def test_finding_in_the_second_order_is_violated():
    x, one, vector = torch.tensor([1e-3, 3.0, 7.0, 0.7]), torch.ones(()), torch.tensor([1.0, 0.1, 0.1, 0.1])
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(leaf.prod(), leaf, one, create_graph=True)
    (second,) = torch.autograd.grad(first, leaf, vector)
    result = reference(lambda x: x.prod()).double_backward(x, one, {"grad_x": vector})["grad_x"]
    assert result.verdict(second).tolist() == [Element.VIOLATED, Element.COVERED, Element.COVERED, Element.COVERED]


def group_norm(x, weight, bias):
    return torch.native_group_norm(x, weight, bias, 1, 6, 3, 2, 0.5)


@pytest.mark.parametrize("item", ["input_layout", "undefined_grad_output"])
def test_finding_in_the_contract_of_group_norm_fails(item):
    inputs = {"x": seeded(1, 6, 3), "weight": seeded(6), "bias": seeded(6)}
    (row,) = verify(group_norm, inputs, battery=[item]).battery
    assert row.outcome is Outcome.FAIL, row


SCATTERS = {
    "diagonal_scatter": lambda x, values: torch.diagonal_scatter(x, values),
    "select_scatter": lambda x, values: torch.select_scatter(x, values, 1, 0),
    "slice_scatter": lambda x, values: torch.slice_scatter(x, values.unsqueeze(0), 0, 1, 2),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_finding_in_a_copy_of_rows_that_overlap_fails(name):
    inputs = {"x": seeded(3, 3), "values": seeded(3, offset=5.0)}
    (row,) = verify(SCATTERS[name], inputs, battery=["input_layout"]).battery
    assert row.outcome is Outcome.FAIL, row
    assert "overlapping" in row.evidence


def test_finding_in_kron_fails_and_a_product_does_not():
    inputs = {"a": seeded(2, 3), "b": seeded(3, 2)}
    (row,) = verify(torch.kron, inputs, battery=["changed_in_place"]).battery
    assert row.outcome is Outcome.FAIL, row
    (row,) = verify(torch.matmul, inputs, battery=["changed_in_place"]).battery
    assert row.outcome is Outcome.PASS, row


@pytest.mark.parametrize("fmt", [fmt for fmt in FORMATS if fmt.dtype.itemsize == 1], ids=lambda fmt: fmt.name)
def test_finding_in_the_eps_of_float8_e5m2fnuz_is_the_only_wrong_one_of_8_bit(fmt):
    values = torch.arange(256, dtype=torch.uint8).view(fmt.dtype).double()
    after_one = fractions.Fraction(values[values > 1].min().item()) - 1
    assert after_one == fractions.Fraction(2 * fmt.unit_roundoff)
    given = torch.finfo(fmt.dtype)
    assert (given.eps == after_one) == (fmt.dtype is not torch.float8_e5m2fnuz)
    assert (given.max, given.smallest_normal) == (fmt.max_finite, fmt.smallest_normal)
