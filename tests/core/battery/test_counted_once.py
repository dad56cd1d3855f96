"""What the comparison has said already is not said again by the battery's items."""

from __future__ import annotations

import torch

from kernels_core.report import Outcome
from kernels_core.verify import verify


class Masked(torch.autograd.Function):
    """Dropout with a given mask, for which it returns no gradient."""

    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return grad * mask, None


class WideLoss(torch.autograd.Function):
    """A loss in float32, whatever the inputs' dtype."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.float().square().sum()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return (2 * x.float() * grad).to(x.dtype)


def test_missing_gradient_is_told_by_one_item():
    inputs = {"x": torch.linspace(-1, 1, 12).reshape(3, 4), "mask": torch.linspace(0, 2, 12).reshape(3, 4)}
    items = ["grad_output_layout", "none_gradient", "later_calls", "retained_graph", "shared_grad_output", "unwritten"]
    report = verify(Masked, inputs, reference=lambda x, mask: x * mask, battery=items)
    assert {row.name for row in report.battery if row.outcome is Outcome.FAIL} == {"none_gradient"}


def test_loss_of_another_dtype_than_the_references_leaves_its_upstream_gradient_alone():
    inputs = {"x": torch.linspace(-1, 1, 5).to(torch.bfloat16)}
    report = verify(WideLoss, inputs, reference=lambda x: x.square().sum(), battery=["shared_grad_output"])
    assert "overwritten" not in report.battery[0].evidence
    assert "another gradient" not in report.battery[0].evidence
