"""Sampling of an image at the places of a grid, in plain arithmetic, for `grid_sample` in two and three dimensions.

For each dimension the place x in [-1, 1] becomes a position, the position is brought into the image where the padding
says so, and a few inputs around it are weighted. The derivative is that of these formulas, which is what PyTorch's
kernels compute. The number of the input next to a position is a matter of rounding where the position is an integer:
there the result is unconstrained.

Source: torch._decomp.decompositions._grid_sampler_2d; ATen/native/GridSampler.h (PyTorch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from kernels_core.decompositions.compute_format import wide
from kernels_core.errors import TraceError

Tensor = torch.Tensor
Tap = tuple[Tensor, Tensor | None]  # the number of an input along one dimension and its weight
_A = -0.75  # of the cubic convolution
_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def _position(x: Tensor, size: int, align: bool) -> Tensor:
    return (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2


def _reflected(x: Tensor, twice_low: int, twice_high: int) -> Tensor:
    if twice_low == twice_high:
        return torch.zeros_like(x)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    distance = (x - low).abs()
    rest = torch.fmod(distance, span)
    odd = torch.fmod((distance / span).floor(), 2) != 0
    return torch.where(odd, span - rest + low, rest + low)


def _padded(x: Tensor, size: int, padding: int, align: bool) -> Tensor:
    if padding == 2:
        x = _reflected(x, 0, 2 * (size - 1)) if align else _reflected(x, -1, 2 * size - 1)
    return x.clamp(0, size - 1) if padding else x


def _padded_number(n: Tensor, size: int, padding: int, align: bool) -> Tensor:
    if padding == 2 and align:
        span = max(1, size - 1)
        n = torch.remainder(n, 2 * span)
        n = torch.where(n > span, 2 * span - n, n)
    elif padding == 2:
        n = torch.remainder(n, 2 * size)
        n = torch.where(n >= size, 2 * size - 1 - n, n)
    return n.clamp(0, size - 1) if padding else n


def _linear(x: Tensor) -> list[Tap]:
    low = x.detach().floor()
    n = low.to(torch.int64)
    return [(n, (n + 1).to(x.dtype) - x), (n + 1, x - low)]


def _cubic(x: Tensor) -> list[Tap]:
    low = x.detach().floor()
    n, t = low.to(torch.int64), x - low

    def near(d: Tensor) -> Tensor:
        return ((_A + 2) * d - (_A + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((_A * d - 5 * _A) * d + 8 * _A) * d - 4 * _A

    return [(n - 1, far(t + 1)), (n, near(t)), (n + 1, near(1 - t)), (n + 2, far(2 - t))]


def _taps(x: Tensor, size: int, mode: int, padding: int, align: bool) -> list[Tap]:
    place = _position(x, size, align)
    if mode == 2:
        return [(_padded_number(n, size, padding, align), weight) for n, weight in _cubic(place)]
    place = _padded(place, size, padding, align)
    return [(place.detach().round().to(torch.int64), None)] if mode == 1 else _linear(place)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Return `input` (N, C, *sizes) at the places `grid` (N, *results, dimensions), the last dimension first."""
    sizes, x = input.shape[2:], wide(input).flatten(2)
    places = wide(grid).flatten(1, -2).unsqueeze(1)
    taps = [
        _taps(places[..., len(sizes) - 1 - dim], size, interpolation_mode, padding_mode, align_corners)
        for dim, size in enumerate(sizes)
    ]
    flat, inside, weight = _combined(taps, sizes)
    choices = flat.shape[1]
    value = x.gather(2, flat.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)).unflatten(2, (choices, -1))
    value = torch.where(inside.unsqueeze(1), value if weight is None else value * weight.unsqueeze(1), 0.0)
    if weight is not None and len(sizes) == 2:  # at a place that is NaN the vectorised kernels return it, others zero
        value = torch.where(weight.isnan().unsqueeze(1), weight.unsqueeze(1), value)
    total = value.squeeze(2) if choices == 1 else value.sum(2)
    return total.reshape(*input.shape[:2], *grid.shape[1:-1]).to(input.dtype)


def _combined(taps: list[list[Tap]], sizes: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return, for each choice of one tap per dimension, the input's flat number, whether it exists, and its weight.

    Each has the shape (N, choices, results).
    """
    flat, inside, weight = None, None, None
    for dimension, size in zip(taps, sizes, strict=True):
        number = torch.cat([tap for tap, _ in dimension], 1)
        here = (number >= 0) & (number <= size - 1)
        number = torch.where(here, number, 0)
        own = None if dimension[0][1] is None else torch.cat([w for _, w in dimension if w is not None], 1)
        flat = number if flat is None else _outer(flat * size, number, torch.add)
        inside = here if inside is None else _outer(inside, here, torch.logical_and)
        weight = own if weight is None or own is None else _outer(weight, own, torch.mul)
    if flat is None or inside is None:
        raise TraceError("grid_sample of a tensor without spatial dimensions")
    return flat, inside, weight


def _outer(before: Tensor, now: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    return combine(before.unsqueeze(2), now.unsqueeze(1)).flatten(1, 2)


def _grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    return grid_sampler(input, grid, _MODES[mode], _PADDINGS[padding_mode], bool(align_corners))


SAMPLERS: Mapping[Any, Callable[..., Any]] = {
    F.grid_sample: _grid_sample,
    torch.grid_sampler: grid_sampler,
    torch.grid_sampler_2d: grid_sampler,
    torch.grid_sampler_3d: grid_sampler,
}
