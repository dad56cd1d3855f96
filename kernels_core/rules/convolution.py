"""Convolutions of one to three dimensions, transposed or not, and their gradients.

One relation serves all: a small tensor S (n, a, s), a large tensor L (n, b, l), weights w (a, b in its group, k), and
l = s stride - padding + k dilation. A convolution is L -> S, a transposed one S -> L, and

    S[n, a, s] = sum_{b, k} L[n, b, l] w[a, b, k]      K = b per group * taps
    L[n, b, l] = sum_{a, k} S[n, a, s] w[a, b, k]      K = a per group * taps
    w[a, b, k] = sum_{n, s} S[n, a, s] L[n, b, l]      K = batch * positions of S

All three are sums of K products, so the bound is that of product_bounds.py with the products formed by the same
operation on magnitudes. Direct summation in any order is granted; Winograd's and Fourier algorithms are not sums of
these products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.integers import whole_integers
from kernels_core.rules.matmul_inputs import as_read
from kernels_core.rules.product_bounds import Addend, product_bound
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.sums import add_up, summed
from kernels_core.rules.windows import Map, per_dim, sliding, sliding_back, window

aten: Any = torch.ops.aten


class Geometry(NamedTuple):
    """Shapes and settings of one convolution."""

    small: tuple[int, ...]
    large: tuple[int, ...]
    weight: tuple[int, ...]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    @property
    def taps(self) -> int:
        """Number of positions of the kernel."""
        return math.prod(self.weight[2:])

    @property
    def per_group(self) -> int:
        """Channels of the small tensor in one group."""
        return self.weight[0] // self.groups

    def maps(self, one: Callable[..., Map], results: tuple[int, ...], operands: tuple[int, ...]) -> list[Map]:
        """Return the map of each spatial dimension."""
        settings = zip(
            results[2:], operands[2:], self.weight[2:], self.stride, self.padding, self.dilation, strict=True
        )
        return [one(*numbers) for numbers in settings]


def _geometry(output: tuple[int, ...], data: tuple[int, ...], weight: tuple[int, ...], settings: Any) -> Geometry:
    stride, padding, dilation, transposed, _, groups = settings
    small, large = (data, output) if transposed else (output, data)
    rank = len(weight) - 2
    return Geometry(
        small, large, weight, per_dim(stride, rank), per_dim(padding, rank), per_dim(dilation, rank), groups
    )


def _sum_of_products(
    local: Local,
    multiply: Any,
    a: Enclosure,
    b: Enclosure,
    inner: int,
    padded: Enclosure,
    more: float = 0.0,
    summand: Addend | None = None,
) -> Enclosure:
    """Return the enclosure of a bilinear operation with `inner` products per result, before it is stored.

    `padded` is the operand that kernels may multiply by the zeros of padding and stride.
    """
    mid = multiply(a.mid, b.mid)
    x, w = as_read(local, a, convolution=True), as_read(local, b, convolution=True)
    bound = product_bound(local, multiply, x, w, inner, more, mid, summand)
    return Enclosure(mid, bound) if all_finite(bound) else _classed(a, b, padded, mid, bound)


def _classed(a: Enclosure, b: Enclosure, padded: Enclosure, mid: torch.Tensor, bound: torch.Tensor) -> Enclosure:
    """Where both operands are exact and `padded` is finite, float64 has the class. Anything else is unknown.

    An infinity in `padded` is unknown because kernels differ in whether they multiply it by the padding's zeros.
    """
    exact = all(v.bound is None or not bool((v.bound != 0).any()) for v in (a, b))
    certain = ~mid.isfinite() if exact and all_finite(padded.mid) else torch.zeros_like(mid, dtype=torch.bool)
    bound = torch.where(certain, 0.0, torch.where(mid.isfinite() & ~bound.isnan(), bound, torch.inf))
    return Enclosure(torch.where(certain | mid.isfinite(), mid, torch.nan), bound)


def convolution(local: Local, data: Enclosure, weight: Enclosure, bias: Enclosure | None, *settings: Any) -> Enclosure:
    """Return the convolution with its bias, rounded once."""
    if not data.floating:
        return whole_integers(local, data, weight, bias, *settings)
    g = _geometry(local.step.shape, data.mid.shape, weight.mid.shape, settings)
    inner = g.taps * (g.per_group if settings[3] else g.weight[1])

    def multiply(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = aten.convolution(x, w, None, *settings)
        return found

    more = _narrow_overlap(local, g) if settings[3] else 0.0
    added = None
    if bias is not None:
        form = (-1,) + (1,) * (len(g.weight) - 2)
        added = Addend(bias.mid.view(form), None if bias.bound is None else bias.bound.expand(bias.shape).view(form))
    value = _sum_of_products(local, multiply, data, weight, inner, weight, more, added)
    return local.stored(value if added is None else _with_bias(value, added))


def _narrow_overlap(local: Local, g: Geometry) -> float:
    """Return how often a 16-bit result of the direction S -> L is rounded on the way, in units of u_acc.

    PyTorch's kernels store the products with each tap in 16 bits and add the taps that overlap in 16 bits (col2im).
    """
    if local.dtype is local.compute:
        return 0.0
    overlap = (-(-k * math.gcd(d, s) // s) for k, d, s in zip(g.weight[2:], g.dilation, g.stride, strict=True))
    return (math.prod(overlap) + 1) * local.u / local.u_acc


def _with_bias(value: Enclosure, bias: Addend) -> Enclosure:
    """Add the bias, one term more of the sum, at any place of it; the bound knows of it already."""
    mid, bound = value.mid + bias.mid, value.bound_or_zero()
    if not all_finite(mid):
        bounded = bool(bias.mid.isfinite().all()) and all_finite(bias.bound_or_zero())
        sure = ~value.mid.isfinite() & (bound == 0) & bounded
        bound = torch.where(sure, 0.0, torch.where(mid.isfinite(), bound, torch.inf))
        mid = torch.where(sure | mid.isfinite(), mid, torch.nan)
    return Enclosure(mid, bound)


def convolution_backward(
    local: Local, grad: Enclosure, data: Enclosure, weight: Enclosure, bias_sizes: Any, *settings: Any
) -> Any:
    """Return the gradients of data, weight and bias, None where they are not asked for."""
    mask, settings = settings[-1], settings[:-1]
    g = _geometry(grad.mid.shape, data.mid.shape, weight.mid.shape, settings)
    inner = g.taps * (g.weight[1] if settings[3] else g.per_group)
    dims = (0, *range(2, grad.mid.dim()))
    positions = math.prod(g.small[i] for i in (0, *range(2, len(g.small))))

    def to_data(dy: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = dy.new_zeros(()).expand(data.shape)
        found: torch.Tensor = aten.convolution_backward(dy, x, w, None, *settings, [True, False, False])[0]
        return found

    def to_weight(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        w = dy.new_zeros(weight.shape)
        found: torch.Tensor = aten.convolution_backward(dy, x, w, None, *settings, [False, True, False])[1]
        return found

    overlap = 0.0 if settings[3] else _narrow_overlap(local, g)
    # PyTorch's 16-bit kernels add image after image to the stored gradient of the weights.
    more = grad.mid.shape[0] * local.u / local.u_acc if local.dtype is not local.compute else 0.0
    return (
        local.stored(_sum_of_products(local, to_data, grad, weight, inner, weight, overlap)) if mask[0] else None,
        local.stored(_sum_of_products(local, to_weight, grad, data, positions, data if settings[3] else grad, more))
        if mask[1]
        else None,
        local.stored(summed(local, grad, dims, False)) if mask[2] else None,
    )


def _to_small(g: Geometry, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (n, K) elements of L and w that elements of S need."""
    n, a, *place = np.unravel_index(index, g.small)
    taps = window(g.maps(sliding, g.small, g.large), place, g.large[2:])
    within = np.arange(g.weight[1])
    channel = (a // g.per_group)[:, None] * g.weight[1] + within
    large = (n[:, None] * g.large[1] + channel)[:, :, None] * math.prod(g.large[2:]) + taps[:, None, :]
    weight = (a[:, None] * g.weight[1] + within)[:, :, None] * g.taps + np.arange(g.taps)
    return _masked(large, weight, np.broadcast_to(taps[:, None, :] >= 0, large.shape))


def _to_large(g: Geometry, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (n, K) elements of S and w that elements of L need."""
    n, b, *place = np.unravel_index(index, g.large)
    taps = window(g.maps(sliding_back, g.large, g.small), place, g.small[2:])
    group, within = np.divmod(b, g.weight[1])
    channel = group[:, None] * g.per_group + np.arange(g.per_group)
    small = (n[:, None] * g.small[1] + channel)[:, :, None] * math.prod(g.small[2:]) + taps[:, None, :]
    weight = (channel * g.weight[1] + within[:, None])[:, :, None] * g.taps + np.arange(g.taps)
    return _masked(small, weight, np.broadcast_to(taps[:, None, :] >= 0, small.shape))


def _to_weight(g: Geometry, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (n, K) elements of S and L that elements of w need."""
    a, b, *tap = np.unravel_index(index, g.weight)
    maps = [m.T for m in g.maps(sliding, g.small, g.large)]
    taps = window(maps, tap, g.large[2:])
    channel = a // g.per_group * g.weight[1] + b
    batch = np.arange(g.small[0])
    size = math.prod(g.small[2:])
    small = (batch * g.small[1] + a[:, None])[:, :, None] * size + np.arange(size)
    large = (batch * g.large[1] + channel[:, None])[:, :, None] * math.prod(g.large[2:]) + taps[:, None, :]
    return _masked(small, large, np.broadcast_to(taps[:, None, :] >= 0, large.shape))


def _masked(x: np.ndarray, y: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    flat = (len(x), math.prod(inside.shape[1:]))
    return (np.where(inside, np.broadcast_to(x, inside.shape), -1).reshape(flat),
            np.where(inside, np.broadcast_to(y, inside.shape), -1).reshape(flat))  # fmt: skip


def _cone(call: Any) -> list[np.ndarray]:
    data, weight, *bias = call.step.operand_metas
    settings = call.step.args[3:]
    g = _geometry(call.meta.shape, data.shape, weight.shape, settings)
    pair = (_to_large if settings[3] else _to_small)(g, call.index)
    channel = np.unravel_index(call.index, call.meta.shape)[1]
    return [*pair, *([channel] if bias else [])]


def _backward_cone(call: Any) -> list[np.ndarray]:
    grad, data, weight = call.step.operand_metas
    *settings, _ = call.step.args[4:]
    g = _geometry(grad.shape, data.shape, weight.shape, settings)
    none = np.full((len(call.index), 0), -1, dtype=np.int64)
    if call.output == 0:
        needed, weights = (_to_small if settings[3] else _to_large)(g, call.index)
        return [needed, none, weights]
    if call.output == 1:
        small, large = _to_weight(g, call.index)
        return [large, small, none] if settings[3] else [small, large, none]
    size = math.prod(grad.shape[2:])
    places = (np.arange(grad.shape[0]) * grad.shape[1] + call.index[:, None])[:, :, None] * size + np.arange(size)
    return [places.reshape(len(call.index), grad.shape[0] * size), none, none]


def _products(call: Any, first: int, second: int, x: Any, y: Any) -> Any:
    """Return the exact sums of products over the taps inside."""
    zero = call.numbers.real(0)
    inside = call.indices[first] >= 0
    terms = np.where(inside, x, zero) * np.where(inside, y, zero)
    return np.add.reduce(terms, axis=1, initial=zero) if terms.shape[1] else np.full(len(terms), zero, dtype=object)


def _exact(call: Any, data: Any, weight: Any, *bias: Any) -> Any:
    value = _products(call, 0, 1, data, weight)
    return value + bias[0] if bias else value


def _backward_exact(call: Any, grad: Any, data: Any, weight: Any) -> Any:
    if call.output == 2:
        return add_up(call, grad)
    return _products(call, 0, 2, grad, weight) if call.output == 0 else _products(call, 0, 1, grad, data)


FAMILY = Family()
FAMILY.add(
    Rule("aten.convolution.default", convolution, _cone, _exact, classed=True),
    Rule("aten.convolution_backward.default", convolution_backward, _backward_cone, _backward_exact, classed=True),
)
