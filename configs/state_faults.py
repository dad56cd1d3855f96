"""Kernels that keep something where it does not belong, or leave something behind; see contract_faults.py."""

import functools
import itertools

import torch
from contract_faults import Sine, SineAndCosine
from torch.autograd import Function


class KeepsItsInputOnTheClass(Sine):
    """interleaved_calls: the input is kept on the class, so that a backward uses that of the last forward."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        KeepsItsInputOnTheClass.x = x
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        """Return cos of the last input times grad."""
        return torch.cos(KeepsItsInputOnTheClass.x) * grad


class KeepsItsInputOnTheContext(Sine):
    """changed_in_place: kept as an attribute of ctx, where autograd does not see that it was written to."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        ctx.x = x
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        """Return cos of whatever the input's memory holds by now, times grad."""
        return torch.cos(ctx.x) * grad


class ChangesTheDefaultDtype(Sine):
    """global_state: sets the default dtype for constants of its own, and leaves it so."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x)."""
        torch.set_default_dtype(torch.float64)
        return Sine.forward(ctx, x)


class ClipsTheGradient(Sine):
    """grad_output_values: a gradient beyond 1000 is clipped."""

    @staticmethod
    def backward(ctx, grad):
        """Return cos(x) grad, between -1000 and 1000."""
        return Sine.backward(ctx, grad).clamp(-1000, 1000)


class MarksAnOutput(SineAndCosine):
    """differentiable_outputs: the second output is declared a constant; what depends on it alone learns nothing."""

    @staticmethod
    def forward(ctx, x):
        """Return sin(x) and cos(x)."""
        ctx.save_for_backward(x)
        found = torch.cos(x)
        ctx.mark_non_differentiable(found)
        return torch.sin(x), found

    @staticmethod
    def backward(ctx, first, second):
        """Return cos(x) times the first gradient."""
        (x,) = ctx.saved_tensors
        return torch.cos(x) * first


def sums_along(x, dim=-1):
    """Return the running sums along a dimension."""
    return torch.cumsum(x, dim)


class SumsAlong(Function):
    """A correct kernel: running sums along a dimension."""

    @staticmethod
    def forward(ctx, x, dim=-1):
        """Return the running sums."""
        ctx.dim = dim
        return torch.cumsum(x, dim)

    @staticmethod
    def backward(ctx, grad):
        """Return the running sums of grad from the end."""
        return grad.flip(ctx.dim).cumsum(ctx.dim).flip(ctx.dim), None


class TakesTheLastDimension(SumsAlong):
    """arguments: `dim` is accepted and not looked at."""

    @staticmethod
    def forward(ctx, x, dim=-1):
        """Return the running sums along the last dimension."""
        return SumsAlong.forward(ctx, x)


class RowSums(Function):
    """A correct kernel: one order of the sum, the same in every call."""

    @staticmethod
    def forward(ctx, x):
        """Return the sum of each row, one number after the other."""
        ctx.shape = x.shape
        return functools.reduce(torch.add, x.unbind(-1))

    @staticmethod
    def backward(ctx, grad):
        """Return grad for every element of its row."""
        return grad[..., None].expand(ctx.shape).clone()


class SumsInTheOrderOfArrival(RowSums):
    """determinism: every call begins its sums at another element, as atomic additions do; each order is legal."""

    calls = itertools.count()

    @staticmethod
    def forward(ctx, x):
        """Return the sum of each row, within the bounds of any order."""
        return RowSums.forward(ctx, x.roll(next(SumsInTheOrderOfArrival.calls), -1))


def row_sums(x):
    """Return the sum of each row."""
    return x.sum(-1)


def mean_of_kept_rows(x, index, ignore_index=-100):
    """Return the mean of one element per row, rows whose index is `ignore_index` left out."""
    keep = index != ignore_index
    picked = x.gather(1, torch.where(keep, index, 0)[:, None])[:, 0]
    return torch.where(keep, picked, 0).sum() / keep.sum()


class MeanOfKeptRows(Function):
    """A correct kernel: the mean of one element per row."""

    @staticmethod
    def forward(ctx, x, index, ignore_index=-100):
        """Return the mean over the rows that are kept."""
        ctx.save_for_backward(index)
        ctx.shape, ctx.ignore_index = x.shape, ignore_index
        return mean_of_kept_rows(x, index, ignore_index)

    @staticmethod
    def backward(ctx, grad):
        """Return grad over the number of rows kept, at the element of each of them."""
        (index,) = ctx.saved_tensors
        keep = index != ctx.ignore_index
        rows = torch.arange(ctx.shape[0])[keep]
        found = grad.new_zeros(ctx.shape)
        found[rows, index[keep]] = grad / keep.sum()
        return found, None, None


class CountsIgnoredRows(MeanOfKeptRows):
    """ignored_indices: the backward divides by all rows and gives those that are ignored a gradient."""

    @staticmethod
    def backward(ctx, grad):
        """Return grad over the number of rows, at one element of each."""
        (index,) = ctx.saved_tensors
        found = grad.new_zeros(ctx.shape)
        found[torch.arange(ctx.shape[0]), torch.where(index == ctx.ignore_index, 0, index)] = grad / ctx.shape[0]
        return found, None, None
