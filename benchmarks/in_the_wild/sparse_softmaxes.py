"""The Functions of the package entmax, called with the settings that a check needs."""

import torch
from entmax import activations, losses, root_finding


def sparsemax(input):
    """Return sparsemax by sorting."""
    return activations.SparsemaxFunction.apply(input, -1, None)


def sparsemax_of_the_largest(input):
    """Return sparsemax by sorting the 4 largest elements first, more where the support is larger."""
    return activations.SparsemaxFunction.apply(input, -1, 4)


def sparsemax_columns_of_the_largest(input, dim):
    """Return sparsemax along a dimension counted from the end, by sorting its 2 largest elements first."""
    return activations.SparsemaxFunction.apply(input, dim, 2)


def entmax15(input):
    """Return entmax-1.5 by sorting."""
    return activations.Entmax15Function.apply(input, -1, None)


def entmax15_of_the_largest(input):
    """Return entmax-1.5 by sorting the 4 largest elements first."""
    return activations.Entmax15Function.apply(input, -1, 4)


def sparsemax_by_bisection(input):
    """Return sparsemax by 50 bisections."""
    return root_finding.SparsemaxBisectFunction.apply(input, -1, 50, True)


def entmax15_by_bisection(input):
    """Return entmax-1.5 by 50 bisections, alpha a number."""
    return root_finding.EntmaxBisectFunction.apply(input, 1.5, -1, 50, True)


def sparsemax_loss(input, target):
    """Return the Fenchel-Young loss of sparsemax for each row."""
    return losses.SparsemaxLossFunction.apply(input, target, None)


def entmax15_loss(input, target):
    """Return the Fenchel-Young loss of entmax-1.5 for each row."""
    return losses.Entmax15LossFunction.apply(input, target, None)


def plain_sparsemax_loss(input, target):
    """Return p x - x_target + (1 - sum p^2) / 2, p = sparsemax(x)."""
    p = _sparsemax(input)
    x = input.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (p * input).sum(-1) - x + (1 - p.square().sum(-1)) / 2


def plain_entmax15_loss(input, target):
    """Return p x - x_target + (1 - sum p^1.5) / 0.75, p = entmax15(x)."""
    from exactref import entmax15 as reference

    p = reference.function(input)
    x = input.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (p * input).sum(-1) - x + (1 - (p * torch.sqrt(p)).sum(-1)) / 0.75


def _sparsemax(input):
    from exactref import sparsemax as reference

    return reference.shifted.function(input)
