"""Normalisations of [batch, channels, ...] tensors: batch, group and instance norm, the variance in two passes.

Epsilon is added to the (biased) variance under the root, weight and bias are one number per channel, and their products
precede the one rounding of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_core.composites import wide
from kernels_core.reference import Reference


def batch_norm(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = True,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, each channel over the batch and all positions.

    Args:
        input: [B, C, ...].
        weight: [C].
        bias: [C].
        running_mean: [C], the mean outside of training; in training it is ignored, and its update is no result.
        running_var: [C], the variance outside of training, likewise.
        training: take the statistics from the batch.
        eps: added to the variance.
    """
    x = wide(input)
    if training or running_mean is None or running_var is None:
        normalised = _normalised(x, (0, *range(2, x.dim())), eps)
    else:
        normalised = (x - _per_channel(running_mean, x)) * torch.rsqrt(_per_channel(running_var, x) + eps)
    return _affine(normalised, weight, bias).to(input.dtype)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return the norm of each sample's groups of neighbouring channels, over the channels of a group and all positions.

    Args:
        input: [B, C, ...], C a multiple of num_groups.
        num_groups: how many groups; 1 is a layer norm of the sample, C an instance norm.
        weight: [C].
        bias: [C].
        eps: added to the variance.
    """
    x = wide(input)
    grouped = x.reshape(x.shape[0], num_groups, -1)
    return _affine(_normalised(grouped, (-1,), eps).reshape(x.shape), weight, bias).to(input.dtype)


def instance_norm(input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return the norm of each sample's channels over their positions.

    Args:
        input: [B, C, ...] with at least one dimension of positions.
        weight: [C].
        bias: [C].
        eps: added to the variance.
    """
    x = wide(input)
    return _affine(_normalised(x, tuple(range(2, x.dim())), eps), weight, bias).to(input.dtype)


def _normalised(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)


def _affine(normalised: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = normalised if weight is None else normalised * _per_channel(weight, normalised)
    return scaled if bias is None else scaled + _per_channel(bias, normalised)


def _per_channel(parameter: Tensor, x: Tensor) -> Tensor:
    return wide(parameter).reshape(1, -1, *[1] * (x.dim() - 2))


ENTRIES = {
    "batch_norm": Reference(batch_norm, "batch_norm"),
    "group_norm": Reference(group_norm, "group_norm"),
    "instance_norm": Reference(instance_norm, "instance_norm"),
}
