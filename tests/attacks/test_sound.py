"""Correct kernels that were once flagged or left without a verdict, one for each kind of fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

import exactref as er
from kernels_core.coverage import Element
from kernels_core.reference import Check, Reference
from kernels_core.tracing import trace as tracing

Tensor = torch.Tensor


def verdicts(
    reference: Any, args: Sequence[Any], grads: Sequence[Tensor], actual: Mapping[str, Tensor]
) -> dict[str, set[Element]]:
    """Return which verdicts the elements of each result get."""
    ref: Reference = er.reference(reference)
    results = Check(ref, tracing.bind(ref.function, list(args), {})).both(list(grads))
    return {name: {Element(int(v)) for v in results[name].verdict(t).unique()} for name, t in actual.items()}


def assert_sound(reference: Any, args: Sequence[Any], grads: Sequence[Tensor], actual: Mapping[str, Tensor]) -> None:
    """Every element is covered."""
    found = verdicts(reference, args, grads, actual)
    assert all(v <= {Element.COVERED} for v in found.values()), found


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_softmax_of_huge_scores(dtype: torch.dtype, n: int) -> None:
    """The distance to a maximum of 1e30 was formed by a difference that float64 cancels: the bound became negative."""
    x, grad = normal(64, n).to(dtype) * 1e30, normal(64, n, seed=1).to(dtype)
    p = torch.softmax(x, -1)
    assert_sound(er.softmax, [x], [grad], {"output": p, "grad_input": p * (grad - (p * grad).sum(-1, keepdim=True))})


def test_log_softmax_backward_of_masked_scores() -> None:
    """The bound of y = -1e30 is 1e23: exp(y + bound) is still zero, while p (exp(bound) - 1) was 0 times infinity."""
    x, grad = normal(8, 5), normal(8, 5, seed=1)
    x[x > 0.3] = -1e30
    y = torch.log_softmax(x, -1)
    assert_sound(er.log_softmax, [x], [grad], {"output": y, "grad_input": grad - y.exp() * grad.sum(-1, keepdim=True)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_pytorch(dtype: torch.dtype, approximate: str) -> None:
    """PyTorch's CPU kernel has an erf of absolute accuracy: near 0 it is off by more ulp than torch.erf may be."""
    x, grad = (normal(4000) * 2).to(dtype), normal(4000, seed=1).to(dtype)
    leaf = x.clone().requires_grad_()
    y = torch.nn.functional.gelu(leaf, approximate=approximate)
    y.backward(grad)
    assert_sound(
        er.gelu.erf if approximate == "none" else er.gelu.tanh,
        [x],
        [grad],
        {"output": y.detach(), "grad_input": leaf.grad},
    )
    assert_sound(
        er.gelu.erf if approximate == "none" else er.gelu.tanh, [x], [grad], {"output": by_exponentials(x, approximate)}
    )


def by_exponentials(x: Tensor, approximate: str) -> Tensor:
    """Return gelu by erfc, or by a tanh made of an exponential, in the compute format."""
    wide = x.float() if x.itemsize < 4 else x
    if approximate == "none":
        return (wide / 2 * torch.erfc(wide * -math.sqrt(0.5))).to(x.dtype)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    return (wide / 2 * (2 - 2 / (torch.exp(2 * inner) + 1))).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_layer_norm_as_affine_map(dtype: torch.dtype, n: int) -> None:
    """A norm computed as a x - a m errs by 2 u a |m| where x - m is exact; that needs what the mean grants."""
    x, grad = (normal(64, n) * 0.1 + 3).to(dtype), normal(64, n, seed=1).to(dtype)
    weight, bias = normal(n, seed=2).to(dtype), normal(n, seed=3).to(dtype)
    mean = x.mean(-1, keepdim=True)
    a = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + 1e-5)
    y = (x * a - mean * a) * weight + bias
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    own = torch.nn.functional.layer_norm(leaves[0], (n,), *leaves[1:])
    own.backward(grad)
    of_pytorch = {"output": own.detach(), "grad_weight": leaves[1].grad, "grad_bias": leaves[2].grad}
    assert_sound(er.layer_norm, [x, weight, bias], [grad], {"output": y})
    assert_sound(er.layer_norm, [x, weight, bias], [grad], of_pytorch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalize_of_zeros(dtype: torch.dtype) -> None:
    """The norm of exact zeros is exact in float64 too, where our own powers may underflow."""
    x, grad = torch.zeros(1, 7, dtype=dtype), normal(1, 7).to(dtype)
    leaf = x.clone().requires_grad_()
    y = torch.nn.functional.normalize(leaf, dim=-1)
    y.backward(grad)
    assert_sound(
        lambda x: torch.nn.functional.normalize(x, dim=-1), [x], [grad], {"output": y.detach(), "grad_x": leaf.grad}
    )
