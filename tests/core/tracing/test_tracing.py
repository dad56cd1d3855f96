"""Tracing: any PyTorch function becomes a program under the names of its signature, and says why where it cannot."""

from __future__ import annotations

import math

import pytest
import torch

import exactref as er
from kernels_core.errors import TraceError, UnsupportedOperation
from kernels_core.reference import Check, reference
from kernels_core.tracing import trace as tracing


def program_of(function, *args, **kwargs):
    return tracing.trace(function, tracing.bind(function, args, kwargs))


def test_program_names_inputs_and_outputs_as_the_signature_does():
    program = program_of(lambda query, key: (query @ key, {"sum": query.sum()}), torch.ones(2, 3), torch.ones(3, 2))
    assert list(program.inputs) == ["query", "key"]
    assert list(program.outputs) == ["output[0]", "output[1]['sum']"]


def test_nested_arguments_are_named_by_their_place():
    program = program_of(lambda tensors, scale: tensors[0] * tensors[1] * scale, [torch.ones(2), torch.ones(2)], 2.0)
    assert list(program.inputs) == ["tensors[0]", "tensors[1]"]


def test_gradient_names_follow_the_inputs():
    gradients = reference(lambda A, B: A @ B).backward(torch.ones(2, 3), torch.ones(3, 4), torch.ones(2, 4))
    assert list(gradients) == ["grad_A", "grad_B"]


def test_integer_inputs_get_no_gradient():
    gradients = reference(lambda x, n: x * n).backward(torch.ones(3), torch.arange(3), torch.ones(3))
    assert list(gradients) == ["grad_x"]


def test_in_place_operations_and_views_are_traced_away():
    def function(x):
        y = x.clone()
        y[0].mul_(3)
        y.add_(1)
        return y

    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert reference(function)(x).covers(function(x)).all()
    assert reference(function).backward(x, torch.ones(2, 2))["grad_x"].enclosure.mid.tolist() == [[3, 3], [1, 1]]


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_branches_on_values_take_the_branch_of_these_inputs(value):
    def function(x):
        return x * 2 if x.sum() > 0 else x * 3

    result = reference(function)(torch.full((2,), value))
    assert result.enclosure.mid.tolist() == [2 * value if value > 0 else 3 * value] * 2


def test_tensors_that_the_function_closes_over_are_constants():
    weight = torch.tensor([2.0, 4.0])
    assert reference(lambda x: x * weight)(torch.ones(2)).enclosure.mid.tolist() == [2, 4]


def test_an_operation_without_rule_is_named_with_its_line():
    def function(x):
        return torch.bernoulli(x)

    with pytest.raises(UnsupportedOperation) as caught:
        program_of(function, torch.full((3,), 0.5))
    assert caught.value.operation == "aten.rand.default"  # what PyTorch makes of it
    assert caught.value.source.startswith(__file__)
    assert "give the mask or the noise as an input" in str(caught.value)


def test_a_function_that_leaves_pytorch_is_refused_with_a_remedy():
    with pytest.raises(TraceError, match="name a reference"):
        program_of(lambda x: torch.from_numpy(x.numpy() * 2), torch.ones(3))


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(TraceError, match="arguments do not fit"):
        reference(lambda A, B: A @ B)(torch.ones(2))


def test_tracing_leaves_the_callers_state_alone():
    x = torch.randn(4, requires_grad=True)
    before = torch.get_rng_state(), torch.get_default_dtype(), torch.get_num_threads(), x._version
    reference(torch.tanh).backward(x.detach(), torch.ones(4))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (torch.get_default_dtype(), torch.get_num_threads(), x._version)
    assert torch.is_grad_enabled()


def test_layer_norm_in_16_bit_grants_no_rounded_statistics():
    """The saved mean of PyTorch's CPU kernel is bfloat16; traced through it, the bound would be 100 times wider."""
    x = (100 + torch.randn(4, 64)).to(torch.bfloat16)
    check = Check(reference(lambda x: torch.nn.functional.layer_norm(x, (64,))), {"x": x})
    steps = [s for s in check.joint.steps if s.name.startswith("aten.native_layer_norm")]
    narrow = [s for s in check.joint.steps if s.op and s.meta.dtype is torch.bfloat16 and math.prod(s.shape) <= 4]
    assert not steps
    assert not narrow


def test_an_lstm_is_made_of_operations_with_rules():
    net, before = torch.nn.LSTM(3, 2), torch.backends.mkldnn.enabled
    x = torch.randn(4, 1, 3, generator=torch.Generator().manual_seed(0))
    result = reference(lambda x: net(x)[0]).backward(x, torch.ones(4, 1, 2))["grad_x"]
    leaf = x.clone().requires_grad_()
    net(leaf)[0].sum().backward()
    assert result.covers(leaf.grad).all()
    assert torch.backends.mkldnn.enabled is before


def test_attention_inside_of_multi_head_attention_is_taken_apart():
    net = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    x = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
    program = program_of(lambda x: net(x, x, x, need_weights=False)[0], x)
    assert any("softmax" in step.name for step in program.steps)
    result = reference(lambda x: net(x, x, x, need_weights=False)[0]).backward(x, torch.ones(1, 3, 4))["grad_x"]
    leaf = x.clone().requires_grad_()
    net(leaf, leaf, leaf, need_weights=False)[0].sum().backward()
    assert result.covers(leaf.grad).all()


@pytest.mark.parametrize("preserve", [True, False])
def test_checkpointing_in_a_reference_is_the_function_itself(preserve: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda a: torch.tanh(a @ w), x, use_reentrant=False, preserve_rng_state=preserve) * 2

    x, w = torch.randn(4, 5), torch.randn(5, 3)
    assert er.check(lambda x, w: 2 * torch.tanh(x @ w), (x, w), reference=reference).verdict == er.Verdict.COVERED
    assert er.check(reference, (x, w), reference=reference).verdict == er.Verdict.COVERED
