"""Layer, RMS, group, batch and instance norm as plain arithmetic: two passes, in the compute format."""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.decompositions.compute_format import wide


def _normalize(x: torch.Tensor, dims: tuple[int, ...], eps: float) -> torch.Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)


def _affine(y: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    if weight is not None:
        y = y * wide(weight)
    return y if bias is None else y + wide(bias)


def _channels(parameter: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    return None if parameter is None else parameter.reshape(1, -1, *[1] * (x.dim() - 2))


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> torch.Tensor:
    """Layer norm over the trailing dimensions, two passes, in the compute format."""
    dims = tuple(range(-len(tuple(normalized_shape)), 0))
    return _affine(_normalize(wide(input), dims, eps), weight, bias).to(input.dtype)


def rms_norm(
    input: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """RMS norm over the trailing dimensions; eps defaults to that of the input's dtype, as in PyTorch."""
    x, dims = wide(input), tuple(range(-len(tuple(normalized_shape)), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return _affine(x * torch.rsqrt(x.square().mean(dims, keepdim=True) + eps), weight, None).to(input.dtype)


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """Group norm: each of `num_groups` groups of channels with all positions."""
    x = wide(input)
    grouped = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:]).flatten(2)
    y = _normalize(grouped, (-1,), eps).reshape(x.shape)
    return _affine(y, _channels(weight, x), _channels(bias, x)).to(input.dtype)


def batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """Batch norm with the batch's statistics in training mode, the running ones otherwise.

    The running statistics are buffers: their update is not part of the result here. A vector has no channels: PyTorch
    takes it only without elements, and returns it as it is.
    """
    if input.dim() < 2 and not input.numel():
        return input.clone()
    x = wide(input)
    if training or running_mean is None or running_var is None:
        y = _normalize(x, (0, *range(2, x.dim())), eps)
    else:
        mean, var = (t.reshape(1, -1, *[1] * (x.dim() - 2)) for t in (wide(running_mean), wide(running_var)))
        y = (x - mean.clone()) * torch.rsqrt(var + eps)  # a copy marks what kernels fold (rewrites/folded_norms.py)
    return _affine(y, _channels(weight, x), _channels(bias, x)).to(input.dtype)


def instance_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """Instance norm: every sample and channel over its positions."""
    x = wide(input)
    if use_input_stats:
        y = _normalize(x, tuple(range(2, x.dim())), eps)
        return _affine(y, _channels(weight, x), _channels(bias, x)).to(input.dtype)
    return batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


def renorm(input: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """Slices along a dimension brought down to a largest norm.

    PyTorch's own derivative is in float64 on the CPU where the input is in float32, which no kernel in float32 does. In
    16 bit it is in float32.
    """
    if input.itemsize < 4:
        return torch.renorm(input, p, dim, maxnorm)
    others = tuple(d for d in range(input.dim()) if d != dim % input.dim())
    norm = torch.linalg.vector_norm(input, p, others, keepdim=True)
    return input * torch.where(norm > maxnorm, (norm + 1e-7).reciprocal() * maxnorm, 1.0)


def functional_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Batch norm with the arguments in the order of `torch.nn.functional`."""
    return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


def functional_instance_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Instance norm with the arguments in the order of `torch.nn.functional`."""
    return instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)
