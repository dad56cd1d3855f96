"""Interpolation and its gradient in terms of operations that have rules.

Each result is a weighted sum of a few inputs, the weights being a function of the distance between source position t
and input. PyTorch's own decomposition takes floor(t), which is a matter of rounding where t is an integer but the
result is not: there the next input gets the weight that is missing. So the inputs around floor(t) are chosen here,
exactly, with those that a rounding of t can reach, and only the weights are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch

from kernels_core.decompositions.compute_format import wide

Tensor = torch.Tensor
aten = torch.ops.aten
_A = -0.75  # of the cubic convolution


class Taps(NamedTuple):
    """The inputs of every result along one dimension, (taps, results), and their weights (None for 1)."""

    places: np.ndarray
    weight: Tensor | None


def _scale(size: int, result: int, align: bool, factor: float | None) -> Fraction:
    if align:
        return Fraction(size - 1, result - 1) if result > 1 else Fraction(0)
    return 1 / Fraction(factor) if factor is not None and factor > 0 else Fraction(size, result)


def _nearest(size: int, result: int, half: bool, factor: float | None) -> Taps:
    """The index is what float32 makes of it: the algorithm of PyTorch is its definition."""
    scale = np.float32(1 / factor if factor is not None and factor > 0 else size / result)
    places = (np.arange(result, dtype=np.float32) + np.float32(0.5 if half else 0.0)) * scale
    return Taps(np.minimum(np.floor(places).astype(np.int64), size - 1)[None], None)


def _linear_weight(distance: Tensor, _: Any) -> Tensor:
    return torch.relu(1 - distance)


def _cubic_weight(distance: Tensor, outer: Tensor) -> Tensor:
    inner = ((_A + 2) * distance - (_A + 3)) * distance * distance + 1
    return torch.where(outer, ((_A * distance - 5 * _A) * distance + 8 * _A) * distance - 4 * _A, inner)


def _weighted(size: int, result: int, align: bool, factor: float | None, cubic: bool, like: Tensor) -> Taps:
    scale = _scale(size, result, align, factor)
    shift = Fraction(0) if align else Fraction(1, 2)
    exact = [(k + shift) * scale - shift for k in range(result)]
    along = torch.arange(result, dtype=like.dtype, device=like.device)
    position = along * float(scale) if align else (along + 0.5) * float(scale) - 0.5
    if not cubic:
        exact = [min(max(t, Fraction(0)), Fraction(size - 1)) for t in exact]
        position = position.clamp(0, size - 1)
    reach = 2 if cubic else 1
    rows = []
    for offset in range(-reach, reach + 2):
        places = [math.floor(t) + offset for t in exact]
        distance = [abs(t - place) for t, place in zip(exact, places, strict=True)]
        # closer than the reach, or so near to it that a rounding of t brings it there (with a weight of that size)
        kept = [
            d < reach + Fraction(1, 1024) and (cubic or 0 <= n < size) for d, n in zip(distance, places, strict=True)
        ]
        if any(kept):
            rows.append((places, [d > 1 for d in distance], kept))
    table: list[Any] = [[row[k] for row in rows] for k in range(3)]
    near, outer, used = (torch.tensor(part, device=like.device) for part in table)
    weight = (_cubic_weight if cubic else _linear_weight)((position - near.to(like.dtype)).abs(), outer)
    if not all(all(row) for row in table[2]):
        weight = torch.where(used, weight, 0.0)
    return Taps(np.clip(np.array(table[0], dtype=np.int64), 0, size - 1), weight)


def _antialiased(size: int, result: int, align: bool, factor: float | None, like: Tensor) -> Taps:
    """A triangle as wide as the scale where it shrinks, its weights normalised (as Pillow does)."""
    scale = _scale(size, result, align, factor)
    width = max(scale, Fraction(1))
    centre = [(k + Fraction(1, 2)) * scale for k in range(result)]
    first = [math.floor(c - width - Fraction(1, 2)) for c in centre]
    rows = []
    for offset in range(math.ceil(2 * width) + 3):
        places = [n + offset for n in first]
        kept = [
            abs(n + Fraction(1, 2) - c) < width + Fraction(1, 1024) and 0 <= n < size
            for n, c in zip(places, centre, strict=True)
        ]
        if any(kept):
            rows.append((places, kept))
    near, used = (torch.tensor([row[k] for row in rows], device=like.device) for k in range(2))
    position = (torch.arange(result, dtype=like.dtype, device=like.device) + 0.5) * float(scale)
    distance = (near.to(like.dtype) - position + 0.5) * float(1 / width)
    weight = torch.where(used, torch.relu(1 - distance.abs()), 0.0)
    weight = weight / weight.sum(0)
    return Taps(np.clip(np.array([row[0] for row in rows], dtype=np.int64), 0, size - 1), weight)


def _combined(sizes: Sequence[int], taps: Sequence[Taps], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return, for each choice of one tap per dimension, flat indices into the input and weights: (choices, results)."""
    rank = len(sizes)
    flat, weight = np.zeros((1,) * (2 * rank), dtype=np.int64), None
    for dim, tap in enumerate(taps):
        shape = [1] * (2 * rank)
        shape[dim], shape[rank + dim] = tap.places.shape
        flat = flat * sizes[dim] + tap.places.reshape(shape)
        if tap.weight is not None:
            own = tap.weight.reshape(shape)
            weight = own if weight is None else weight * own
    choices = math.prod(flat.shape[:rank])
    index = torch.tensor(flat.reshape(choices, -1).tolist(), dtype=torch.int64, device=device)
    return index, None if weight is None else weight.reshape(choices, -1)


Make = Callable[[Sequence[int], Sequence[int], Sequence[Any], Tensor], list[Taps]]


def _nearest_taps(half: bool) -> Make:
    return lambda sizes, results, settings, like: [
        _nearest(n, r, half, f) for n, r, f in zip(sizes, results, _factors(settings, len(sizes)), strict=True)
    ]


def _weighted_taps(cubic: bool) -> Make:
    return lambda sizes, results, settings, like: [
        _weighted(n, r, settings[0], f, cubic, like)
        for n, r, f in zip(sizes, results, _factors(settings[1:], len(sizes)), strict=True)
    ]


def _antialiased_taps(
    sizes: Sequence[int], results: Sequence[int], settings: Sequence[Any], like: Tensor
) -> list[Taps]:
    return [
        _antialiased(n, r, settings[0], f, like)
        for n, r, f in zip(sizes, results, _factors(settings[1:], len(sizes)), strict=True)
    ]


def _factors(settings: Sequence[Any], rank: int) -> list[Any]:
    return [settings[d] if d < len(settings) else None for d in range(rank)]


def _forward(make: Make) -> Callable[..., Tensor]:
    def forward(x: Tensor, output_size: Sequence[int], *settings: Any) -> Tensor:
        sizes, x_wide = x.shape[2:], wide(x)
        index, weight = _combined(sizes, make(sizes, output_size, settings, x_wide), x.device)
        terms = x_wide.flatten(2).index_select(2, index.reshape(-1)).reshape(*x.shape[:2], *index.shape)
        value = terms.squeeze(2) if weight is None else (terms * weight).sum(2)
        return value.reshape(*x.shape[:2], *output_size).to(x.dtype)

    return forward


def _by_factors(forward: Callable[..., Tensor], aligned: bool) -> Callable[..., Tensor]:
    """Return the overload that takes a size or factors."""

    def vec(x: Tensor, output_size: Any, *rest: Any) -> Tensor:
        factors = rest[-1]
        size = (
            output_size
            if output_size is not None
            else [math.floor(n * f) for n, f in zip(x.shape[2:], factors, strict=True)]
        )
        return forward(x, size, *(rest[:1] if aligned else ()), *([] if factors is None else factors))

    return vec


def _backward(make: Make) -> Callable[..., Tensor]:
    def backward(grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], *settings: Any) -> Tensor:
        sizes, g = input_size[2:], wide(grad)
        index, weight = _combined(sizes, make(sizes, output_size, settings, g), grad.device)
        terms = g.flatten(2).unsqueeze(2)
        terms = (terms if weight is None else terms * weight).flatten(2)
        zeros = g.new_zeros((*input_size[:2], math.prod(sizes)))
        return zeros.index_add(2, index.reshape(-1), terms).reshape(input_size).to(grad.dtype)

    return backward


def _table(forward: Any, backward: Any, make: Make, aligned: bool) -> dict[Any, Callable[..., Any]]:
    function = _forward(make)
    return {forward.default: function, forward.vec: _by_factors(function, aligned), backward.default: _backward(make)}


INTERPOLATIONS: Mapping[Any, Callable[..., Any]] = {
    **_table(aten.upsample_nearest1d, aten.upsample_nearest1d_backward, _nearest_taps(False), False),
    **_table(aten.upsample_nearest2d, aten.upsample_nearest2d_backward, _nearest_taps(False), False),
    **_table(aten.upsample_nearest3d, aten.upsample_nearest3d_backward, _nearest_taps(False), False),
    **_table(aten._upsample_nearest_exact1d, aten._upsample_nearest_exact1d_backward, _nearest_taps(True), False),
    **_table(aten._upsample_nearest_exact2d, aten._upsample_nearest_exact2d_backward, _nearest_taps(True), False),
    **_table(aten._upsample_nearest_exact3d, aten._upsample_nearest_exact3d_backward, _nearest_taps(True), False),
    **_table(aten.upsample_linear1d, aten.upsample_linear1d_backward, _weighted_taps(False), True),
    **_table(aten.upsample_bilinear2d, aten.upsample_bilinear2d_backward, _weighted_taps(False), True),
    **_table(aten.upsample_trilinear3d, aten.upsample_trilinear3d_backward, _weighted_taps(False), True),
    **_table(aten.upsample_bicubic2d, aten.upsample_bicubic2d_backward, _weighted_taps(True), True),
    **_table(aten._upsample_bilinear2d_aa, aten._upsample_bilinear2d_aa_backward, _antialiased_taps, True),
}
