"""What tied elements get together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels_core.battery import Settings
from kernels_core.report import BatteryRow, Outcome
from kernels_core.verify import verify
from tests.core.battery.planted import seeded

Tensor = torch.Tensor
X = {"x": seeded(6, 13)}
REFERENCES = {
    "amax": lambda x: x.amax(-1),
    "max with indices": lambda x: x.max(-1).values,
    "min with indices": lambda x: x.min(-1).values,
    "max of all": lambda x: x.max(),
    "softmax minus max": lambda x: (x - x.amax(-1, keepdim=True)).exp().sum(-1),
    "max pooling": lambda x: F.max_pool1d(x.unsqueeze(0), 3)[0],
    "median": lambda x: x.median(-1).values,
}


def row(kernel: Any, reference: Any, **inputs: Tensor) -> BatteryRow:
    given = inputs or X
    settings = Settings(free=list(given))
    (found,) = verify(kernel, given, reference=reference, battery=["tied_elements"], settings=settings).battery
    return found


def choosing(weights: Any) -> type[torch.autograd.Function]:
    """Return the largest number of each row, whose gradient is shared out by `weights` of the mask of ties."""

    class Chooses(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            found = x.amax(-1)
            ctx.save_for_backward(x, found)
            return found

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            x, found = ctx.saved_tensors
            return weights((x == found.unsqueeze(-1)).to(x.dtype)) * grad.unsqueeze(-1)

    return Chooses


def first(mask: Tensor) -> Tensor:
    return mask * (mask.cumsum(-1) == 1)


def last(mask: Tensor) -> Tensor:
    return first(mask.flip(-1)).flip(-1)


def growing(mask: Tensor) -> Tensor:
    shares = mask * torch.arange(1.0, mask.shape[-1] + 1)
    return shares / shares.sum(-1, keepdim=True)


@pytest.mark.parametrize("reference", ["amax", "max with indices"])
@pytest.mark.parametrize("weights", [first, last, growing, lambda m: m / m.sum(-1, keepdim=True)])
def test_every_convex_combination_is_left_alone(weights: Any, reference: str) -> None:
    assert row(choosing(weights), REFERENCES[reference]).outcome is Outcome.PASS


@pytest.mark.parametrize("reference", ["amax", "max with indices"])
@pytest.mark.parametrize("weights", [lambda m: m, lambda m: 0.5 * first(m), lambda m: first(m) + last(m)])
def test_shares_that_do_not_add_up_are_caught(weights: Any, reference: str) -> None:
    found = row(choosing(weights), REFERENCES[reference])
    assert found.outcome is Outcome.FAIL
    assert "no convex combination" in found.evidence


@pytest.mark.parametrize("name", REFERENCES)
def test_pytorch_itself_is_left_alone(name: str) -> None:
    assert row(lambda x: REFERENCES[name](x), REFERENCES[name]).outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE)


class FullToBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.maximum(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, b = ctx.saved_tensors
        return grad * (a >= b), grad * (b >= a)


class AllToTheFirst(FullToBoth):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, b = ctx.saved_tensors
        return grad * (a >= b), grad * (b > a)


def test_ties_between_two_inputs_are_judged_together() -> None:
    inputs = {"a": seeded(6, 13), "b": seeded(6, 13, seed=1)}
    assert row(FullToBoth, torch.maximum, **inputs).outcome is Outcome.FAIL
    assert row(AllToTheFirst, torch.maximum, **inputs).outcome is Outcome.PASS


def test_ties_with_a_threshold_are_not_judged() -> None:
    found = row(lambda x: x.relu(), lambda x: x.clamp(min=0))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "no direction keeps" in found.evidence
