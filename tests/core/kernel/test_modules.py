"""A module is a kernel whose parameters are inputs; it is left as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels_core.errors import UsageError
from kernels_core.kernel.modules import ModuleKernel, as_kernel, reference_for
from kernels_core.report import Outcome, Verdict
from kernels_core.verify import check, verify
from tests.core.kernel import ways_to_write as ways

Tensor = torch.Tensor
X = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))


class Layer(nn.Module):
    """A linear layer through a Function whose input gradient is `factor` times the true one."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 7))
        self.bias = nn.Parameter(torch.zeros(3))
        self.register_buffer("calls", torch.zeros(()))
        self.apply_linear = ways.linear(factor).apply

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.apply_linear(x, self.weight, self.bias)


class WithoutBias(Layer):
    """Ignores its bias."""

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_linear(x, self.weight)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 7))
        self.bias = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(7, 7), nn.Linear(7, 7, bias=False)
        self.b.weight = self.a.weight
        self.a.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))  # type: ignore[no-any-return]


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(7)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x)  # type: ignore[no-any-return]


def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias)


def names(report: Any) -> list[str]:
    return [row.name for row in report.tensors]


@pytest.mark.parametrize("module", [Layer, Layer()])
@pytest.mark.parametrize("reference", [None, Plain, Plain(), plain])
def test_gradients_of_parameters_are_checked_against_any_kind_of_reference(module: Any, reference: Any) -> None:
    report = verify(module, {"x": X}, reference=reference)
    assert report.covered
    assert names(report) == ["output", "grad_x", "grad_weight", "grad_bias"]


@pytest.mark.parametrize("reference", [None, Plain, plain])
def test_a_wrong_gradient_is_violated_whatever_the_reference(reference: Any) -> None:
    report = check(Layer(1.01), (X,), reference=reference)
    assert [row.name for row in report.tensors if row.verdict is Verdict.VIOLATED] == ["grad_x"]


def test_a_bias_that_begins_as_zeros_does_not_hide_that_it_is_ignored() -> None:
    report = verify(WithoutBias, {"x": X}, reference=Plain)
    assert report.row("output").verdict is Verdict.VIOLATED
    assert report.row("grad_bias").verdict is Verdict.VIOLATED


def test_the_module_is_left_as_it_was() -> None:
    module = Layer()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.eval()
    verify(ModuleKernel(module, "train"), {"x": X}, battery="all")
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.weight.grad is None
    assert not module.training


def test_shared_parameters_are_one_input_and_frozen_ones_are_not_differentiated() -> None:
    report = verify(Tied, {"x": X})
    assert report.covered
    assert names(report) == ["output", "grad_x", "grad_a.weight"]
    assert [given.name for given in report.inputs] == ["x", "a.weight", "a.bias"]


def test_named_parameters_alone_are_differentiated() -> None:
    assert names(verify(Tied, {"x": X}, wrt=["a.bias"])) == ["output", "grad_a.bias"]


def test_parameters_may_be_given() -> None:
    weight = torch.ones(3, 7)
    report = verify(Layer, {"x": X, "weight": weight}, reference=lambda x, weight, bias: x @ weight.t() + bias)
    assert report.covered


def test_training_and_evaluation_are_different_functions() -> None:
    module = Normed()
    module.bn.running_mean.add_(3.0)
    assert check(ModuleKernel(module, "train"), (X,)).covered
    assert check(ModuleKernel(module, "eval"), (X,)).covered
    evaluated = lambda x, bn_weight, bn_bias, bn_running_mean, bn_running_var: F.batch_norm(  # noqa: E731
        x, bn_running_mean, bn_running_var, bn_weight, bn_bias, False
    )
    assert check(ModuleKernel(module, "eval"), (X,), reference=evaluated).covered
    assert check(ModuleKernel(module, "train"), (X,), reference=evaluated).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("module", "mode", "outcome", "evidence"),
    [
        (Layer(), "eval", Outcome.FAIL, "the forward changed calls in evaluation mode"),
        (Layer(), "train", Outcome.PASS, "changed in training mode, as running statistics are: calls"),
        (Normed(), "eval", Outcome.PASS, "unchanged: bn.running_mean, bn.running_var, bn.num_batches_tracked"),
        (Plain(), "eval", Outcome.NOT_APPLICABLE, "no buffers of a module"),
    ],
)
def test_buffers_are_watched(module: nn.Module, mode: str, outcome: Outcome, evidence: str) -> None:
    (row,) = verify(ModuleKernel(module, mode), {"x": X}, battery=["buffers"]).battery
    assert (row.outcome, row.evidence) == (outcome, evidence)


def test_a_function_may_have_a_module_as_its_reference() -> None:
    inputs = {"x": X, "weight": torch.randn(3, 7), "bias": torch.randn(3)}
    assert verify(ways.linear(1.0), inputs, reference=Plain).covered
    assert verify(ways.linear(1.01), inputs, reference=Plain).verdict is Verdict.VIOLATED


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_module_has_the_names_of_its_own() -> None:
    report = check(torch.compile(Layer(), backend="eager"), (X,), reference=Plain)
    assert report.covered
    assert names(report)[2:] == ["grad_weight", "grad_bias"]
    assert not check(torch.compile(Layer(1.01), backend="eager"), (X,), reference=Plain).covered


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_kernel(nn.Linear), "Linear is an nn.Module class that cannot be built without arguments"),
        (lambda: ModuleKernel(Plain(), "evl"), "mode: wanted one of train, eval, found 'evl', did you mean \"eval\"?"),
        (lambda: as_kernel(plain, "eval"), 'mode is for modules: plain has no "eval" mode'),
        (
            lambda: reference_for(ModuleKernel(Plain()), lambda x, wieght, bias: x),
            'the reference <lambda> takes no weight, did you mean "wieght"?\nlet it take the parameters',
        ),
        (
            lambda: reference_for(ModuleKernel(Plain()), Tied),
            "Tied has the parameters a.weight, a.bias, Plain",
        ),
    ],
)
def test_what_does_not_fit_is_explained(call: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value).startswith(message)
