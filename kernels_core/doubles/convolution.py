"""Convolutions and their gradients by exact splitting (exact_sums.bilinear), by ATen's names.

Each is a sum of K products of a small tensor S, a large one L and weights w (rules/convolution.py). One power of two
serves a whole image, or a whole channel, so that all terms of a result share it:

    images with weights        p of an image (all its channels), q of a channel of the result
    gradient of the weights    p of a channel of S, q of a channel of L

PyTorch's float64 kernels are products of matrices of patches, which the doctor's assumption on these covers.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kernels_core.doubles.arithmetic import add
from kernels_core.doubles.exact_sums import Multiply, Scales, bilinear, row_scale, total
from kernels_core.doubles.number import DoubleDouble, U
from kernels_core.doubles.record import Call, Evaluation, fine

Tensor = torch.Tensor
aten: Any = torch.ops.aten


def convolution(call: Call, data: Any, weight: Any, bias: Any, *settings: Any) -> DoubleDouble:
    """Return the convolution with its bias."""
    x, w = _whole(data), _whole(weight)
    transposed, groups = settings[3], settings[5]

    def multiply(a: Tensor, b: Tensor) -> Tensor:
        found: Tensor = aten.convolution(a, b, None, *settings)
        return found

    inner = math.prod(w.shape[2:]) * (w.shape[0] // groups if transposed else w.shape[1])
    found = _with_weights(x, w, multiply, inner, call.value.shape, groups if transposed else 0)
    if bias is None:
        return found
    form = (-1,) + (1,) * (len(w.shape) - 2)
    return add(found, _whole(bias).each(lambda part: part.view(form)))


def convolution_backward(call: Call, grad: Any, data: Any, weight: Any, sizes: Any, *settings: Any) -> list[Any]:
    """Return the gradients of data, weight and bias, those that are asked for."""
    g, x, w = _whole(grad), _whole(data), _whole(weight)
    mask, settings = settings[-1], settings[:-1]
    transposed, groups = settings[3], settings[5]

    def to_data(a: Tensor, b: Tensor) -> Tensor:
        like = a.new_zeros(()).expand(x.shape)
        found: Tensor = aten.convolution_backward(a, like, b, None, *settings, [True, False, False])[0]
        return found

    def to_weight(a: Tensor, b: Tensor) -> Tensor:
        like = a.new_zeros(w.shape)
        found: Tensor = aten.convolution_backward(a, b, like, None, *settings, [False, True, False])[1]
        return found

    found = []
    if mask[0]:
        inner = math.prod(w.shape[2:]) * (w.shape[1] if transposed else w.shape[0] // groups)
        found.append(_with_weights(g, w, to_data, inner, x.shape, 0 if transposed else groups))
    if mask[1]:
        found.append(_of_weights(g, x, to_weight, w.shape, transposed, groups))
    if mask[2]:
        found.append(total(g, (0, *range(2, len(g.shape)))))
    return found


def _whole(value: Any) -> DoubleDouble:
    return fine(value).each(lambda part: part)


def _with_weights(
    x: DoubleDouble, w: DoubleDouble, multiply: Multiply, inner: int, shape: tuple[int, ...], groups: int
) -> DoubleDouble:
    """Return images times weights; `groups` is 0 where the weights' first dimension is the result's channels."""
    rest = tuple(range(2, len(w.shape)))
    form = (1, -1, *(1 for _ in rest))
    if not inner or not math.prod(shape) or not x.hi.numel():
        return _nothing(x, w, multiply)
    p = row_scale(x.hi, (1, *rest))
    q = row_scale(w.hi, (0, *rest) if groups else (1, *rest))
    channels = q.expand(1, -1, *q.shape[2:]).repeat(1, groups, *(1 for _ in rest)) if groups else q.view(form)
    return _bilinear(x, w, multiply, inner, (p, q), (p, channels))


def _of_weights(
    grad: DoubleDouble, data: DoubleDouble, multiply: Multiply, shape: tuple[int, ...], transposed: bool, groups: int
) -> DoubleDouble:
    """Return the gradient of the weights, of shape (channels of S, channels of L in a group, taps)."""
    dims = (0, *range(2, len(shape)))
    small = data if transposed else grad
    inner = small.shape[0] * math.prod(small.shape[2:])
    if not inner or not math.prod(shape):
        return _nothing(grad, data, multiply)
    scales = row_scale(grad.hi, dims), row_scale(data.hi, dims)
    of_small, of_large = reversed(scales) if transposed else scales
    taps = (1,) * (len(shape) - 2)
    rows = of_small.reshape(-1, 1, *taps)
    columns = of_large.reshape(groups, 1, shape[1]).expand(groups, shape[0] // groups, shape[1])
    return _bilinear(grad, data, multiply, inner, scales, (rows, columns.reshape(shape[0], shape[1], *taps)))


def _bilinear(
    a: DoubleDouble, b: DoubleDouble, multiply: Multiply, inner: int, scales: Scales, places: Scales
) -> DoubleDouble:
    moved = a.hi.new_zeros(())
    if bool((a.rad != 0).any()) or bool((b.rad != 0).any()):
        both = multiply(a.hi.abs(), b.rad).add_(multiply(a.rad, b.hi.abs() + b.rad))
        moved = both.mul_(1 + (2 * inner + 8) * U)
    return bilinear(a, b, multiply, inner, scales, places, moved)


def _nothing(a: DoubleDouble, b: DoubleDouble, multiply: Multiply) -> DoubleDouble:
    zero = multiply(a.hi, b.hi)
    return DoubleDouble(zero, torch.zeros_like(zero), torch.zeros_like(zero))


EVALUATIONS: dict[str, Evaluation] = {
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": convolution_backward,
}
