"""A gradient of several terms may be added up in any order, and is still bounded."""

import itertools

import pytest
import torch

from kernels_core.reference import Check, reference


def of_three_ways(x, w):
    return torch.sin(x) * w + x * torch.exp(w) + x * w * w


def terms(x, w, grad):
    return grad * w * torch.cos(x), grad * torch.exp(w), grad * w * w


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_order_of_the_terms_is_covered(dtype):
    torch.manual_seed(0)
    x, w, grad = (torch.randn(4000).to(dtype) for _ in range(3))
    check = Check(reference(of_three_ways), {"x": x, "w": w})
    assert "exactref.accumulated" in [step.name for step in check.joint.steps]
    result = check.both([grad])["grad_x"]
    for a, b, c in itertools.permutations(terms(x, w, grad)):
        assert result.covers((a + b) + c).all()


def test_a_dropped_term_and_a_planted_error_are_violated():
    torch.manual_seed(0)
    x, w, grad = torch.randn(100), torch.randn(100), torch.randn(100)
    result = reference(of_three_ways).backward(x, w, grad)["grad_x"]
    a, b, c = terms(x, w, grad)
    assert not result.covers(a + b).any()
    assert not result.covers((a + b + c) * (1 + 2.0**-15)).all()


def test_second_order_of_a_product_and_a_sum_may_be_added_in_any_order():
    torch.manual_seed(1)
    x, w, b, grad, v, u, t = (torch.randn(16, 32) for _ in range(7))
    second = reference(lambda x, w, b: x * w + b).double_backward(
        x, w, b, grad, {"grad_x": v, "grad_w": u, "grad_b": t}
    )["grad_grad_output"]
    for one, two, three in itertools.permutations((v * w, u * x, t)):
        assert second.covers((one + two) + three).all()
