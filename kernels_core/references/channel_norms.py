"""Normalisations of [batch, channels, ...] tensors: batch, group and instance norm, the variance in two passes.

Epsilon is added to the (biased) variance under the root, weight and bias are one number per channel, and their products
precede the one rounding of the result.

The algorithm `folded` makes one factor and one summand of statistics, weight and bias, as PyTorch's own CPU kernels of
group norm and of batch norm in evaluation do: x a + (bias - mean a), a = weight / sqrt(variance + eps). Where x is near
the mean and both are large against the spread, this loses what x - mean keeps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernels_core.decompositions.compute_format import wide
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
    return _batch(input, weight, bias, running_mean, running_var, training, eps, _affine)


def batch_norm_folded(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = True,
    eps: float = 1e-5,
) -> Tensor:
    """Return the batch norm with statistics, weight and bias folded."""
    return _batch(input, weight, bias, running_mean, running_var, training, eps, _folded)


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
    return _group(input, num_groups, weight, bias, eps, _affine)


def group_norm_folded(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return the group norm with statistics, weight and bias folded."""
    return _group(input, num_groups, weight, bias, eps, _folded)


def instance_norm(input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return the norm of each sample's channels over their positions.

    Args:
        input: [B, C, ...] with at least one dimension of positions.
        weight: [C].
        bias: [C].
        eps: added to the variance.
    """
    return _group(input, input.shape[1], weight, bias, eps, _affine)


def instance_norm_folded(
    input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return the instance norm with statistics, weight and bias folded."""
    return _group(input, input.shape[1], weight, bias, eps, _folded)


def _batch(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    eps: float,
    end: Callable[..., Tensor],
) -> Tensor:
    x = wide(input)
    if training or running_mean is None or running_var is None:
        mean, rstd = _statistics(x, (0, *range(2, x.dim())), eps)
    else:
        mean, rstd = _per_channel(running_mean, x), torch.rsqrt(_per_channel(running_var, x) + eps)
    return end(x, mean, rstd, weight, bias).to(input.dtype)


def _group(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    end: Callable[..., Tensor],
) -> Tensor:
    """Return the norm of groups, whose statistics are spread over their channels."""
    x = wide(input)
    grouped = x.reshape(x.shape[0], num_groups, -1)
    shape = (*x.shape[:2], *[1] * (x.dim() - 2))
    spread = [t.expand(-1, -1, x.shape[1] // num_groups).reshape(shape) for t in _statistics(grouped, (-1,), eps)]
    return end(x, *spread, weight, bias).to(input.dtype)


def _statistics(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    mean = x.mean(dims, keepdim=True)
    return mean, torch.rsqrt((x - mean).square().mean(dims, keepdim=True) + eps)


def _affine(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    normalised = (x - mean) * rstd
    scaled = normalised if weight is None else normalised * _per_channel(weight, x)
    return scaled if bias is None else scaled + _per_channel(bias, x)


def _folded(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    factor = rstd if weight is None else rstd * _per_channel(weight, x)
    summand = -mean * factor if bias is None else _per_channel(bias, x) - mean * factor
    return x * factor + summand


def _per_channel(parameter: Tensor, x: Tensor) -> Tensor:
    return wide(parameter).reshape(1, -1, *[1] * (x.dim() - 2))


_BATCH = {"folded": Reference(batch_norm_folded, "batch_norm.folded")}
_GROUP = {"folded": Reference(group_norm_folded, "group_norm.folded")}
_INSTANCE = {"folded": Reference(instance_norm_folded, "instance_norm.folded")}
ENTRIES = {
    "batch_norm": Reference(batch_norm, "batch_norm", algorithms=_BATCH),
    "group_norm": Reference(group_norm, "group_norm", algorithms=_GROUP),
    "instance_norm": Reference(instance_norm, "instance_norm", algorithms=_INSTANCE),
}
