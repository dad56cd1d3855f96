"""The gradients without outputs that they do not need: the same intervals from fewer steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from kernels_core.reference import Check, reference

X, Y = torch.linspace(-2, 3, 12).reshape(3, 4), torch.linspace(1, -1, 20).reshape(4, 5)


@pytest.mark.parametrize(("function", "steps"), [
    (lambda x, y: x @ y, "aten.mm.default"),
    (lambda x, y: F.gelu(x @ y), "aten.gelu.default"),
    (lambda x, y: (x.sin() * x).sum(-1).exp() @ y[:3], None),
])  # fmt: skip
def test_gradients_alone_have_the_intervals_of_the_whole(
    function: Callable[..., torch.Tensor], steps: str | None
) -> None:
    check = Check(reference(function), {"x": X, "y": Y})
    grads = [torch.linspace(1, 2, m.numel).reshape(m.shape) for m in check.cotangents.values()]
    whole, alone = check.both(grads), check.gradients(grads)
    assert sorted(alone) == ["grad_x", "grad_y"]
    for name, result in alone.items():
        assert torch.equal(result.enclosure.mid, whole[name].enclosure.mid)
        assert torch.equal(result.enclosure.bound_or_zero(), whole[name].enclosure.bound_or_zero())
    program, _ = check.gradients_program
    names = [[step.name for step in p.steps].count(steps) for p in (check.joint, program)]
    assert steps is None or names[1] == names[0] - 1
