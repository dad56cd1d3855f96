"""Normalisations over the last dimension. Epsilon is added under the root: 1 / sqrt(variance + eps)."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def layer_norm(input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, variance = mean((x - mean)^2), in two passes.

    Args:
        input: [..., N].
        weight: [N].
        bias: [N].
        eps: added to the (biased) variance.
    """
    x = wide(input)
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return _affine(centred * torch.rsqrt(variance + eps), weight, bias).to(input.dtype)


def layer_norm_one_pass(
    input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return the layer norm with variance = mean(x^2) - mean^2.

    The same number, but where the mean is large against the spread this grants the rounding of mean(x^2), which may
    exceed the variance itself; such elements are then unconstrained.
    """
    x = wide(input)
    mean = x.mean(-1, keepdim=True)
    variance = x.square().mean(-1, keepdim=True) - mean.square()
    return _affine((x - mean) * torch.rsqrt(variance + eps), weight, bias).to(input.dtype)


def rms_norm(input: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Return x / sqrt(mean(x^2) + eps) * weight; the product with the weight precedes the one rounding.

    Args:
        input: [..., N].
        weight: [N].
        eps: added to the mean of squares.
    """
    x = wide(input)
    normalised = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return _affine(normalised, weight, None).to(input.dtype)


def _affine(normalised: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = normalised if weight is None else normalised * wide(weight)
    return scaled if bias is None else scaled + wide(bias)


_LAYER_NORM = {
    "two_pass": Reference(layer_norm, "layer_norm.two_pass"),
    "one_pass": Reference(layer_norm_one_pass, "layer_norm.one_pass"),
}
ENTRIES = {
    "layer_norm": Reference(layer_norm, "layer_norm", algorithms=_LAYER_NORM),
    "rms_norm": Reference(rms_norm, "rms_norm"),
}
