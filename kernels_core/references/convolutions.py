"""Convolutions (cross-correlations, as in every deep-learning library): direct sums of products, in float32 or wider.

The bias is added before the one rounding. Direct summation in any order is granted, implicit matrix products among it;
Winograd's and Fourier algorithms, whose roundings are of another kind, are not.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels_core.decompositions.compute_format import wide
from kernels_core.errors import UsageError
from kernels_core.reference import Reference

Sizes = int | tuple[int, ...]


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Return out[n, o, l] = bias[o] + sum over c, k of x[n, c, l stride - padding + k dilation] w[o, c, k].

    Args:
        input: [B, C, L]; zero outside of it.
        weight: [O, C / groups, K].
        bias: [O].
        stride: of the positions.
        padding: zeros at both ends.
        dilation: of the taps.
        groups: output channel o reads only the input channels of its group.
    """
    return F.conv1d(wide(input), wide(weight), _wide(bias), stride, padding, dilation, groups).to(input.dtype)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of [B, C, H, W] with [O, C / groups, kH, kW]; arguments as of `conv1d`."""
    return F.conv2d(wide(input), wide(weight), _wide(bias), stride, padding, dilation, groups).to(input.dtype)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of [B, C, D, H, W] with [O, C / groups, kD, kH, kW]; arguments as of `conv1d`."""
    return F.conv3d(wide(input), wide(weight), _wide(bias), stride, padding, dilation, groups).to(input.dtype)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Return the transposed convolution, out[n, o, l stride - padding + k dilation] += x[n, c, l] w[c, o, k].

    Args:
        input: [B, C, L].
        weight: [C, O / groups, K].
        bias: [O].
        stride: distance of what neighbouring positions write.
        padding: positions cut off at both ends.
        output_padding: positions added at the end.
        groups: input channel c writes only to the output channels of its group.
        dilation: of the taps.
    """
    x, w, b = wide(input), wide(weight), _wide(bias)
    return F.conv_transpose1d(x, w, b, stride, padding, output_padding, groups, dilation).to(input.dtype)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Return the transposed convolution of [B, C, H, W] with [C, O / groups, kH, kW]; see `conv_transpose1d`."""
    x, w, b = wide(input), wide(weight), _wide(bias)
    return F.conv_transpose2d(x, w, b, stride, padding, output_padding, groups, dilation).to(input.dtype)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Return the transposed convolution of [B, C, D, H, W] with [C, O / groups, kD, kH, kW]; see `conv_transpose1d`."""
    x, w, b = wide(input), wide(weight), _wide(bias)
    return F.conv_transpose3d(x, w, b, stride, padding, output_padding, groups, dilation).to(input.dtype)


def causal_conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """Return out[b, c, l] = bias[c] + sum over k of x[b, c, l - K + 1 + k] w[c, k], each channel for itself.

    Args:
        input: [B, C, L].
        weight: [C, K]; the last tap meets the present position.
        bias: [C].
        initial_state: [B, C, K - 1], what precedes the input; zeros where left out.
        activation: None, or "silu": x sigmoid(x) before the one rounding.
    """
    return causal_conv1d_with_state(input, weight, bias, initial_state, activation)[0]


def causal_conv1d_with_state(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output of `causal_conv1d` and the last K - 1 positions, the state for the next call."""
    before = weight.shape[-1] - 1
    state = input.new_zeros(*input.shape[:-1], before) if initial_state is None else initial_state.to(input.dtype)
    whole = torch.cat([state, input], -1)
    out = F.conv1d(wide(whole), wide(weight).unsqueeze(1), _wide(bias), groups=weight.shape[0])
    if activation == "silu":
        out = out * torch.sigmoid(out)
    elif activation is not None:
        raise UsageError(f"activation={activation!r} is not known\nuse one of: silu, None")
    return out.to(input.dtype), whole[..., whole.shape[-1] - before :]


def _wide(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else wide(bias)


ENTRIES = {
    "conv1d": Reference(conv1d, "conv1d"),
    "conv2d": Reference(conv2d, "conv2d"),
    "conv3d": Reference(conv3d, "conv3d"),
    "conv_transpose1d": Reference(conv_transpose1d, "conv_transpose1d"),
    "conv_transpose2d": Reference(conv_transpose2d, "conv_transpose2d"),
    "conv_transpose3d": Reference(conv_transpose3d, "conv_transpose3d"),
    "causal_conv1d": Reference(
        causal_conv1d,
        "causal_conv1d",
        algorithms={"with_state": Reference(causal_conv1d_with_state, "causal_conv1d.with_state")},
    ),
}
