"""Kernels with right first gradients whose derivatives in another order or mode are wrong; see contract_faults.py."""

import torch
from contract_faults import Sine
from torch.autograd import Function


class KeepsItsSlope(Sine):
    """double_backward: the slope is computed in the forward, a constant when the gradient is differentiated again."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        ctx.slope = torch.cos(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        """Return the kept slope times grad."""
        return ctx.slope * grad


class SineWithTangent(Sine):
    """A correct kernel with a forward mode of its own."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        ctx.slope = torch.cos(x)
        return Sine.forward(ctx, x)

    @staticmethod
    def jvp(ctx, tangent):
        """Return cos(x) tangent."""
        return ctx.slope * tangent


class WrongTangent(SineWithTangent):
    """forward_mode: the tangent has the wrong sign."""

    @staticmethod
    def jvp(ctx, tangent):
        """Return -cos(x) tangent."""
        return -ctx.slope * tangent


class RunningSum(Function):
    """A correct kernel with a rule for batches."""

    @staticmethod
    def forward(x):
        """Return the running sums along the last dimension."""
        return torch.cumsum(x, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keep nothing."""

    @staticmethod
    def backward(ctx, grad):
        """Return the running sums of grad from the end."""
        return grad.flip(-1).cumsum(-1).flip(-1)

    @staticmethod
    def vmap(info, in_dims, x):
        """Return the sums of the batch, which is brought to the front."""
        return RunningSum.apply(x.movedim(in_dims[0], 0)), 0


class TakesTheBatchToBeInFront(RunningSum):
    """vmap: the rule does not look where the batch dimension is."""

    @staticmethod
    def vmap(info, in_dims, x):
        """Return the sums of the batch, as if it were in front."""
        return RunningSum.apply(x), 0


def running_sum(x):
    """Return the running sums along the last dimension."""
    return torch.cumsum(x, -1)
