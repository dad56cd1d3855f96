"""Which elements a sliding window covers, as index arithmetic; what the cones of convolutions and pools are made of.

A map of one dimension is an int64 array (results, taps) of operand positions, -1 where a tap falls outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Map = np.ndarray


def per_dim(value: int | Sequence[int], rank: int) -> list[int]:
    """Return one number per spatial dimension from PyTorch's int, one-element or full list."""
    values = [value] if isinstance(value, int) else list(value)
    return [int(v) for v in (values * rank if len(values) == 1 else values)]


def sliding(results: int, operands: int, kernel: int, stride: int, padding: int, dilation: int) -> Map:
    """Return the positions r stride - padding + k dilation of the taps of each result r."""
    place = np.arange(results)[:, None] * stride - padding + np.arange(kernel) * dilation
    return np.where((place >= 0) & (place < operands), place, -1)


def sliding_back(results: int, operands: int, kernel: int, stride: int, padding: int, dilation: int) -> Map:
    """Return, for the transposed map, the position s with s stride - padding + k dilation = r, where there is one."""
    place, rest = np.divmod(np.arange(results)[:, None] + padding - np.arange(kernel) * dilation, stride)
    return np.where((rest == 0) & (place >= 0) & (place < operands), place, -1)


def adaptive(results: int, operands: int) -> Map:
    """Return the windows [floor(r n / m), ceil((r + 1) n / m)) of adaptive pools."""
    start = np.arange(results) * operands // max(results, 1)
    end = -(-(np.arange(results) + 1) * operands // max(results, 1))
    width = int((end - start).max()) if results else 0
    place = start[:, None] + np.arange(width)
    return np.where(place < end[:, None], place, -1)


def inverted(forward: Map, operands: int) -> Map:
    """Return, for each operand position, the results whose window holds it (once per tap), -1 padded."""
    found: list[list[int]] = [[] for _ in range(operands)]
    for result, row in enumerate(forward):
        for place in row[row >= 0]:
            found[place].append(result)
    width = max((len(row) for row in found), default=0)
    return np.array([row + [-1] * (width - len(row)) for row in found], dtype=np.int64).reshape(operands, width)


def window(maps: Sequence[Map], coordinates: Sequence[np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """Return (n, taps): flat spatial operand positions of the window at each of n coordinates, -1 outside."""
    flat = np.zeros((len(coordinates[0]) if coordinates else 0, 1), dtype=np.int64)
    for one, at, size in zip(maps, coordinates, sizes, strict=True):
        rows = one[at][:, None, :]
        outside = (flat[:, :, None] < 0) | (rows < 0)
        flat = np.where(outside, -1, flat[:, :, None] * size + rows).reshape(len(flat), flat.shape[1] * one.shape[1])
    return flat
