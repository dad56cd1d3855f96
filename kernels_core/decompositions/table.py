"""Operations that PyTorch has no decomposition for, in terms of those that have rules.

What they compute in the middle is named as PyTorch's kernels do it, so that every rounding of these is granted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels_core.decompositions.counting import COUNTING
from kernels_core.decompositions.interpolation import INTERPOLATIONS
from kernels_core.decompositions.losses import LOSSES
from kernels_core.decompositions.reflections import REFLECTIONS
from kernels_core.errors import TraceError

Tensor = torch.Tensor
aten = torch.ops.aten


def _rrelu(
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:
    """Return what evaluation computes, a leaky relu of the mean slope, and the noise, which it leaves alone.

    Raises:
        TraceError: in training it draws the slopes.
    """
    if training:
        raise TraceError("rrelu in training\na reference cannot draw random numbers: give the slopes as an input")
    return aten.leaky_relu(self, (lower + upper) / 2), noise


def _new_zeros_like(self: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Return the zero tangent that an operation in place starts from."""
    return torch.zeros(self.shape[:self_num_batch_dims] + other.shape, dtype=self.dtype, device=self.device)


def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    """Return the tangent of a sigmoid(b): da s + (a s) (db - s db)."""
    (_, b), (da, db) = x.chunk(2, dim), dx.chunk(2, dim)
    s = torch.sigmoid(b)
    return da * s + glu * (db - s * db)


def _trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Tensor:
    product = torch.ones((), dtype=i1.dtype, device=i1.device)
    for factor, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for dim in dims:
            factor = factor.unsqueeze(dim)
        product = product * factor
    return torch.sum(product, list(sumdim)) if sumdim else product


def _distance(difference: Tensor, p: float) -> Tensor:
    if p == 0:
        return torch.sum((difference != 0).to(difference.dtype), -1)
    norm: Tensor = torch.linalg.vector_norm(difference, p, -1)
    return norm


def _distance_gradient(grad: Tensor, difference: Tensor, p: float, distance: Tensor) -> Tensor:
    """Return d distance / d difference times grad, as PyTorch's kernels write it; 0 where the distance is 0."""
    grad, distance = grad.unsqueeze(-1), distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(difference) * grad
    if p == 1:
        return difference.sign() * grad
    if p == float("inf"):
        return difference.sign() * (difference.abs() == distance).to(grad.dtype) * grad
    safe = torch.where(distance == 0, 1.0, distance)
    if p == 2:
        return torch.where(distance == 0, 0.0, grad * difference / safe)
    power = torch.where(difference == 0, 0.0, torch.where(difference == 0, 1.0, difference.abs()) ** (p - 1))
    return torch.where(distance == 0, 0.0, difference.sign() * power * grad / safe ** (p - 1))


def _cdist_forward(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    return _distance(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, distance: Tensor) -> Tensor:
    return _distance_gradient(grad, x1.unsqueeze(-2) - x2.unsqueeze(-3), p, distance).sum(-2)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind(0)
    return first, second


def _pdist_forward(x: Tensor, p: float = 2) -> Tensor:
    first, second = _pairs(x)
    return _distance(x[first] - x[second], p)


def _pdist_backward(grad: Tensor, x: Tensor, p: float, distance: Tensor) -> Tensor:
    first, second = _pairs(x)
    each = _distance_gradient(grad, x[first] - x[second], p, distance)
    return torch.zeros_like(x).index_add(0, first, each).index_add(0, second, -each)


MORE: Mapping[Any, Callable[..., Any]] = {
    **COUNTING,
    **INTERPOLATIONS,
    **LOSSES,
    **REFLECTIONS,
    aten.rrelu_with_noise_functional.default: _rrelu,
    aten._new_zeros_with_same_feature_meta.default: _new_zeros_like,
    aten.glu_jvp.default: _glu_jvp,
    aten._trilinear.default: _trilinear,
    aten._cdist_forward.default: _cdist_forward,
    aten._cdist_backward.default: _cdist_backward,
    aten._pdist_forward.default: _pdist_forward,
    aten._pdist_backward.default: _pdist_backward,
}
