"""The precision audit of convolutions: their sums are sampled like those of products."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from kernels_core.report import Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def reference(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.conv1d(x, w, b, padding=1)


def kernel_with(spoilt: str):
    """Return the convolution, with one of its gradients larger by 2^-11."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b):
            ctx.save_for_backward(x, w, b)
            return reference(x, w, b)

        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
                found = dict(zip("xwb", torch.autograd.grad(reference(*leaves), leaves, grad), strict=True))
            return tuple(value * (1 + 2**-11) if name == spoilt else value for name, value in found.items())

    return Kernel


@pytest.mark.parametrize("spoilt", ["w", "b"])
def test_audit_suspects_gradients_of_a_convolution_that_err_in_the_eleventh_bit(spoilt: str) -> None:
    inputs = {"x": normal(4, 8, 1024), "w": normal(8, 8, 3, seed=1), "b": normal(8, seed=2)}
    report = verify(kernel_with(spoilt), inputs, reference=reference)
    assert {row.name for row in report.tensors if row.verdict is Verdict.SUSPECT} == {f"grad_{spoilt}"}


def _by_position(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Add the taps and channels one after the other, in float32."""
    padded = functional.pad(x, (1, 1))
    total = b[None, :, None].expand(len(x), len(b), x.shape[-1])
    for channel in range(x.shape[1]):
        for tap in range(3):
            total = total + padded[:, None, channel, tap : tap + x.shape[-1]] * w[None, :, channel, tap, None]
    return total


@pytest.mark.parametrize("shift", [0, 100])
def test_audit_leaves_a_sequential_convolution_far_below_the_limit(shift: int) -> None:
    inputs = {"x": normal(2, 16, 64) + shift, "w": normal(4, 16, 3, seed=1) + shift, "b": normal(4, seed=2)}
    for row in verify(_by_position, inputs, reference=reference).tensors:
        assert row.precision is not None
        assert row.precision.bits_lost < 2, row.name
