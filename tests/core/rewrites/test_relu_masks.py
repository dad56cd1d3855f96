"""The derivative of relu is at a kink at 0 only."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels_core.reference import reference
from kernels_core.tracing.derivatives import trace_vjp
from kernels_core.tracing.trace import trace


def test_relu_gradient_of_negative_values_is_no_kink() -> None:
    x, grad = torch.tensor([-2.0, -1e-30, 0.0, 3.0]), torch.ones(4)
    result = reference(lambda x: F.relu(x)).backward(x, grad)["grad_x"]
    assert result.covers(torch.tensor([0.0, 0.0, 0.0, 1.0])).all()
    assert result.covers(torch.tensor([1.0, 1.0, 0.5, 1.0])).tolist() == [False, False, True, True]
    assert result.verdict_and_kinks(torch.tensor([0.0, 0.0, 1.0, 1.0]))[1].tolist() == [False, False, True, False]


def test_relu_derivative_reads_the_argument() -> None:
    function = torch.relu
    arguments = {"input": torch.randn(3)}
    forward = trace(function, arguments)
    program = trace_vjp(function, arguments, ["input"], forward)
    (step,) = [s for s in program.steps if s.name == "aten.threshold_backward.default"]
    assert step.operands[1].step == program.inputs["input"]
