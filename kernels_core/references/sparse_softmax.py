"""Softmaxes with exact zeros: sparsemax and entmax-1.5, by sorting.

An element at the threshold itself is a kink; PyTorch's convention there is a derivative of 0.

The threshold has its value from the sorted row and its derivatives from the row as it is. Through the sort they would
depend on the order of equal elements, which is a kink of each sorted value but none of the threshold, and 16-bit inputs
have equal elements in every long row. So the sort is cut off, and d = x - x, whose value is zero and whose derivative
is one, is added in the places where x itself would stand.

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
    top = x.amax(dim, keepdim=True).detach()
    return torch.relu(x - top - _sparsemax_threshold(x, dim, top)).to(input.dtype)


def entmax15(input: Tensor, dim: int = -1) -> Tensor:
    """Return max(x / 2 - tau, 0)^2 along `dim`, with tau such that the result adds up to 1, of x - max(x).

    With y = (x - max) / 2 sorted downwards, and means over the k largest, tau = mean(y) - sqrt((1 - k (mean(y^2) -
    mean(y)^2)) / k), where k is the number of elements that are not below their own tau.
    """
    x = wide(input)
    top = x.amax(dim, keepdim=True).detach()
    return torch.relu((x - top) / 2 - _entmax15_threshold(x, dim, top)).square().to(input.dtype)


def _sparsemax_threshold(x: Tensor, dim: int, top: Tensor | None = None) -> Tensor:
    largest, k = _sorted(x, dim, top)
    tau = ((largest.cumsum(dim) - 1) / k).amax(dim, keepdim=True)
    return tau + _mean(x - x.detach(), _shifted(x, top) > tau, dim)


def _entmax15_threshold(x: Tensor, dim: int, top: Tensor) -> Tensor:
    largest, k = _sorted(x, dim, top)
    largest = largest / 2
    mean, mean_of_squares = largest.cumsum(dim) / k, largest.square().cumsum(dim) / k
    tau = mean - _spread(mean, mean_of_squares, k).clamp(min=0).sqrt()
    last = (tau <= largest).sum(dim, keepdim=True) - 1
    mean, mean_of_squares, k = mean.gather(dim, last), mean_of_squares.gather(dim, last), (last + 1).to(x.dtype)
    y, d = _shifted(x, top) / 2, (x - x.detach()) / 2
    support = y > tau.gather(dim, last)
    mean, mean_of_squares = mean + _mean(d, support, dim), mean_of_squares + _mean((2 * y + d) * d, support, dim)
    return mean - _spread(mean, mean_of_squares, k).sqrt()


def _mean(x: Tensor, support: Tensor, dim: int) -> Tensor:
    return (x * support).sum(dim, keepdim=True) / support.sum(dim, keepdim=True)


def _spread(mean: Tensor, mean_of_squares: Tensor, k: Tensor) -> Tensor:
    return (1 - k * (mean_of_squares - mean.square())) / k


def _sorted(x: Tensor, dim: int, top: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return x, shifted, sorted downwards and without derivatives, and 1, 2, ... along the same dimension."""
    count = torch.arange(1, x.shape[dim] + 1, dtype=x.dtype, device=x.device)
    return _shifted(x.detach().sort(dim, descending=True).values, top), count.reshape(_only(x, dim))


def _shifted(x: Tensor, top: Tensor | None) -> Tensor:
    return x.detach() if top is None else x.detach() - top


def _only(x: Tensor, dim: int) -> list[int]:
    return [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]


ENTRIES = {
    "sparsemax": Reference(
        sparsemax, "sparsemax", algorithms={"shifted": Reference(sparsemax_shifted, "sparsemax.shifted")}
    ),
    "entmax15": Reference(entmax15, "entmax15"),
}
