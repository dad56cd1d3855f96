"""Softmaxes with exact zeros: sparsemax and entmax-1.5, by sorting.

An element at the threshold itself is a kink; PyTorch's convention there is a derivative of 0.

Source: Martins & Astudillo, From Softmax to Sparsemax (2016), algorithm 1; Peters, Niculae & Martins, Sparse
Sequence-to-Sequence Models (2019), algorithm 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def sparsemax(input: Tensor, dim: int = -1) -> Tensor:
    """Return max(x - tau, 0) along `dim`, with tau such that the result adds up to 1.

    With x sorted downwards tau = max over k of (x_1 + ... + x_k - 1) / k: adding an element raises the quotient exactly
    while that element is above it.
    """
    x = wide(input)
    return torch.relu(x - _sparsemax_threshold(x, dim)).to(input.dtype)


def sparsemax_shifted(input: Tensor, dim: int = -1) -> Tensor:
    """Return the sparsemax of x - max(x), which is the same; elements far from zero then lose no digits in tau."""
    x = wide(input)
    x = x - x.amax(dim, keepdim=True).detach()
    return torch.relu(x - _sparsemax_threshold(x, dim)).to(input.dtype)


def entmax15(input: Tensor, dim: int = -1) -> Tensor:
    """Return max(x / 2 - tau, 0)^2 along `dim`, with tau such that the result adds up to 1, of x - max(x).

    With y = (x - max) / 2 sorted downwards, and means over the k largest, tau = mean(y) - sqrt((1 - k (mean(y^2) -
    mean(y)^2)) / k), where k is the number of elements that are not below their own tau.
    """
    y = wide(input)
    y = (y - y.amax(dim, keepdim=True).detach()) / 2
    return torch.relu(y - _entmax15_threshold(y, dim)).square().to(input.dtype)


def _sparsemax_threshold(x: Tensor, dim: int) -> Tensor:
    largest, k = _sorted(x, dim)
    return ((largest.cumsum(dim) - 1) / k).amax(dim, keepdim=True)


def _entmax15_threshold(y: Tensor, dim: int) -> Tensor:
    largest, k = _sorted(y, dim)
    mean, mean_of_squares = largest.cumsum(dim) / k, largest.square().cumsum(dim) / k
    tau = mean - _spread(mean, mean_of_squares, k).clamp(min=0).sqrt()
    last = (tau.detach() <= largest).sum(dim, keepdim=True) - 1
    mean, mean_of_squares, k = mean.gather(dim, last), mean_of_squares.gather(dim, last), (last + 1).to(y.dtype)
    return mean - _spread(mean, mean_of_squares, k).sqrt()


def _spread(mean: Tensor, mean_of_squares: Tensor, k: Tensor) -> Tensor:
    return (1 - k * (mean_of_squares - mean.square())) / k


def _sorted(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return x sorted downwards, and 1, 2, ... along the same dimension."""
    count = torch.arange(1, x.shape[dim] + 1, dtype=x.dtype, device=x.device)
    return x.sort(dim, descending=True).values, count.reshape(_only(x, dim))


def _only(x: Tensor, dim: int) -> list[int]:
    return [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]


ENTRIES = {
    "sparsemax": Reference(
        sparsemax, "sparsemax", algorithms={"shifted": Reference(sparsemax_shifted, "sparsemax.shifted")}
    ),
    "entmax15": Reference(entmax15, "entmax15"),
}
