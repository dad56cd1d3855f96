"""Kernels that are right on normal numbers and wrong on one family of values, and a module that keeps count in eval.

`exactref check configs/contract_faults.yaml --case values_offset` shows what the battery says of one.
"""

import torch
from torch.autograd import Function


def square(x):
    """Return x^2."""
    return x * x


def twice(x):
    """Return 2 x."""
    return x * 2


def variance(x):
    """Return the variance of each row, in two passes."""
    return (x - x.mean(-1, keepdim=True)).square().mean(-1)


def one_pass_variance(x):
    """Return the variance of each row as a difference of moments, which cancels where the mean is large."""
    return x.square().mean(-1) - x.mean(-1).square()


def softmax(x):
    """Return the softmax of each row."""
    return torch.softmax(x, -1)


def softmax_without_maximum(x):
    """Return the softmax of each row by exponentials that overflow."""
    powers = x.exp()
    return powers / powers.sum(-1, keepdim=True)


def softmax_of_masked_as_uniform(x):
    """Return the softmax of each row, a uniform one where anything is masked."""
    return torch.where(x.isinf().any(-1, keepdim=True), 1 / x.shape[-1], torch.softmax(x, -1))


def cubes_small_rows(x):
    """Return x^2, but 3 x^2 where no number is beyond 1."""
    return torch.where((x.abs() < 1).all(), 3 * x * x, x * x)


def flushes_tiny(x):
    """Return x^2, but zero for small numbers."""
    return torch.where(x.abs() < 2.0**-16, 0 * x, x * x)


def saturates(x):
    """Return x^2, but too much of it beyond 100."""
    return torch.where(x.abs() > 100, 3 * x * x, x * x)


def doubles_ties(x):
    """Return x^2, but 3 x^2 where neighbours are equal."""
    return torch.where((x[..., 1:] == x[..., :-1]).any(), 3 * x * x, x * x)


def divides_by_itself(x):
    """Return x^2, but NaN at zero."""
    return torch.where(x == 0, x / x, x * x)


def doubles_constants(x):
    """Return x^2, but 3 x^2 where every row is constant."""
    return torch.where((x == x[..., :1]).all(), 3 * x * x, x * x)


def neighbours(x):
    """Return the sums of neighbours."""
    return x[..., :-1] + x[..., 1:]


def drops_what_cancels(x):
    """Return the sums of neighbours, zero where little is left."""
    sums = x[..., :-1] + x[..., 1:]
    return torch.where(sums.abs() < 2.0**-18, 0 * sums, sums)


def doubles_the_hot_one(x):
    """Return x^2, but 3 x^2 for the one of a one-hot row."""
    return torch.where((x.sum(-1, keepdim=True) == 1) & (x != 0), 3 * x * x, x * x)


def doubles_certainty(x):
    """Return x^2, but 3 x^2 at 1."""
    return torch.where(x == 1, 3 * x * x, x * x)


def flushes_subnormals(x):
    """Return 2 x, but zero for subnormal numbers."""
    return torch.where(x.abs() < 2.0**-126, 0 * x, x * 2)


def capped(x):
    """Return 2 x, capped where x is beyond 4.5."""
    return torch.clamp(x, -4.5, 4.5) * 2


def capped_too_late(x):
    """Return 2 x, capped a little later on one side."""
    return torch.clamp(x, -4.5, 4.75) * 2


def rows(table, index):
    """Return rows of a table."""
    return table[index]


class LastRowWins(Function):
    """Rows of a table; the gradient of a row that is used twice is that of its last use."""

    @staticmethod
    def forward(ctx, table, index):
        """Return the rows."""
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        """Write the gradients of the rows, where they are to be added."""
        (index,) = ctx.saved_tensors
        found = torch.zeros(ctx.shape)
        found[index] = grad
        return found, None


class CountsInTraining(torch.nn.Module):
    """A correct module, which changes a buffer in training only."""

    def __init__(self):
        """Make a weight and the buffer."""
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        """Return x times the weight."""
        self.calls += self.training
        return x * self.weight


class CountsInEvaluation(CountsInTraining):
    """A module that changes a buffer with every call, in evaluation mode too."""

    def forward(self, x):
        """Return x times the weight."""
        self.calls += 1
        return x * self.weight


def relu(x):
    """Return max(x, 0)."""
    return x.clamp(min=0)


class EndsAtSix(Function):
    """A rectifier whose gradient is that of relu6; nothing in the reference compares with 6."""

    @staticmethod
    def forward(ctx, x):
        """Return max(x, 0)."""
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        """Return grad between 0 and 6."""
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < 6), grad, 0.0)


def norm(x):
    """Return the length of each row."""
    return torch.linalg.vector_norm(x, dim=-1)


class DividesByTheNorm(Function):
    """The length of each row; the gradient of a row of zeros is NaN, where zero is a subgradient and PyTorch's."""

    @staticmethod
    def forward(ctx, x):
        """Return the length of each row."""
        length = torch.linalg.vector_norm(x, dim=-1)
        ctx.save_for_backward(x, length)
        return length

    @staticmethod
    def backward(ctx, grad):
        """Return grad x / length."""
        x, length = ctx.saved_tensors
        return (grad / length).unsqueeze(-1) * x


def largest(x):
    """Return the largest number of each row."""
    return x.amax(-1)


class FullGradientToEveryTie(Function):
    """The largest number of each row; every element that is equal to it gets the whole gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return the largest number of each row."""
        found = x.amax(-1)
        ctx.save_for_backward(x, found)
        return found

    @staticmethod
    def backward(ctx, grad):
        """Return grad wherever x is the largest number."""
        x, found = ctx.saved_tensors
        return (x == found.unsqueeze(-1)) * grad.unsqueeze(-1)


def mean_of_kept(x, mask):
    """Return the mean of the elements of each row that are kept, zero where none is."""
    kept = mask.to(x.dtype)
    return (x * kept).sum(-1) / kept.sum(-1).clamp_min(1)


class MeanOfKept(Function):
    """A correct kernel: the mean of what is kept of each row."""

    @staticmethod
    def number(mask):
        """Return how many elements of each row are kept, 1 where none is."""
        return mask.sum(-1).clamp_min(1)

    @classmethod
    def forward(cls, ctx, x, mask):
        """Return the mean of the elements that are kept."""
        number = cls.number(mask)
        ctx.save_for_backward(mask, number)
        return (x * mask).sum(-1) / number

    @staticmethod
    def backward(ctx, grad):
        """Return grad over the number of elements that are kept."""
        mask, number = ctx.saved_tensors
        return mask * (grad / number).unsqueeze(-1), None


class DividesByNothing(MeanOfKept):
    """values_masks: 0/0 where nothing of a row is kept."""

    @staticmethod
    def number(mask):
        """Return how many elements of each row are kept."""
        return mask.sum(-1)


class Weighs(torch.nn.Module):
    """A correct module, the same in both modes."""

    def __init__(self):
        """Make a weight."""
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6))

    def forward(self, x):
        """Return x times the weight."""
        return x * self.weight


class WeighsTwiceInTraining(Weighs):
    """other_mode: right in evaluation, and not in training."""

    def forward(self, x):
        """Return x times the weight, in training times the weight once more."""
        return super().forward(super().forward(x) if self.training else x)
