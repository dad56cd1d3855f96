"""Activations whose derivative PyTorch writes in a form that overflows before the function does."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels_core.decompositions.compute_format import wide


def mish(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """Mish, x tanh(softplus(x)): PyTorch's twice differentiable gradient takes log1p(exp(x)) as it stands.

    Softplus is x itself above 20, which moves tanh by less than 2^-80.
    """
    x = wide(input)
    found = (x * torch.tanh(F.softplus(x))).to(input.dtype)
    return input.copy_(found) if inplace else found
