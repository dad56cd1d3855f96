"""Upstream gradients that are huge, tiny, of mixed sizes or sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.core.battery.planted import kernel, require_caught, require_left_alone, seeded

Sine = kernel("Sine")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def passing_on(change: Callable[[torch.Tensor], torch.Tensor]) -> type[torch.autograd.Function]:
    """Return a sine whose upstream gradient is changed first."""

    class Changes(Sine):
        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return Sine.backward(ctx, change(grad))

    return Changes


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "huge": lambda g: g.clamp(-1000, 1000),
    "tiny": lambda g: torch.where(g.abs() < 1e-3, 0.0, g),
    "a single one among zeros": lambda g: torch.where((g != 0).sum() == 1, 0.0, g),
    "of mixed sizes": lambda g: torch.where(g.abs() < 2.0**-3 * g.abs().max(), 0.0, g) if g.abs().max() > 3 else g,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAULTS)
def test_gradient_that_is_not_linear_in_the_upstream_is_caught(family: str, dtype: torch.dtype) -> None:
    inputs = {"x": seeded(30).to(dtype)}
    faulty = passing_on(FAULTS[family])
    if family == "tiny":
        inputs["x"] = inputs["x"] / 8
    require_caught(faulty, "grad_output_values", inputs, "elements of grad_x violated", reference=kernel("sine"),
                   grads=[torch.full((30,), 0.5).to(dtype)])  # fmt: skip


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("function", [torch.sin, lambda x: torch.softmax(x, -1), lambda x: (x @ x.T / 7).tanh().sum(0)])
def test_correct_gradients_are_left_alone(function: Any, dtype: torch.dtype) -> None:
    require_left_alone(lambda x: function(x), "grad_output_values", {"x": seeded(5, 7).to(dtype)}, reference=function)
