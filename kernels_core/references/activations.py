"""Elementwise functions: kernels compute in float32 for 16-bit tensors and round once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def gelu(input: Tensor) -> Tensor:
    """Return x Phi(x) = x (1 + erf(x / sqrt(2))) / 2.

    One operation, whose rule grants all usual forms: the cancellation in 1 + erf for negative x that common kernels
    have, and an erf with an absolute accuracy only, such as that inside PyTorch's own CPU kernel.
    """
    return _gelu(wide(input)).to(input.dtype)


def gelu_tanh(input: Tensor) -> Tensor:
    """Return x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which is another function than `gelu`.

    One operation, whose rule grants a tanh made of exponentials too.
    """
    return _gelu_tanh(wide(input)).to(input.dtype)


def silu(input: Tensor) -> Tensor:
    """Return x sigmoid(x)."""
    return _silu(wide(input)).to(input.dtype)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return silu(gate) up, rounded once."""
    return (_silu(wide(gate)) * wide(up)).to(gate.dtype)


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return gelu(gate) up with the erf form, rounded once."""
    return (_gelu(wide(gate)) * wide(up)).to(gate.dtype)


def geglu_tanh(gate: Tensor, up: Tensor) -> Tensor:
    """Return gelu(gate) up with the tanh form, rounded once."""
    return (_gelu_tanh(wide(gate)) * wide(up)).to(gate.dtype)


def relu(input: Tensor) -> Tensor:
    """Return max(x, 0); 0 is a kink, where PyTorch's derivative is 0 and any value in [0, 1] is a subgradient."""
    return torch.relu(wide(input)).to(input.dtype)


def sigmoid(input: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return torch.sigmoid(wide(input)).to(input.dtype)


def tanh(input: Tensor) -> Tensor:
    """Return the hyperbolic tangent of x."""
    return torch.tanh(wide(input)).to(input.dtype)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + exp(beta x)) / beta where beta x <= threshold, else x itself.

    The test is on beta x, in the backward too. The function jumps at the threshold by exp(-threshold) / beta.
    """
    return F.softplus(wide(input), beta, threshold).to(input.dtype)


def square(input: Tensor) -> Tensor:
    """Return x^2."""
    x = wide(input)
    return (x * x).to(input.dtype)


def cube(input: Tensor) -> Tensor:
    """Return x^3."""
    x = wide(input)
    return (x * x * x).to(input.dtype)


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


_GELU = {"erf": Reference(gelu, "gelu.erf"), "tanh": Reference(gelu_tanh, "gelu.tanh")}
_GEGLU = {"erf": Reference(geglu, "geglu.erf"), "tanh": Reference(geglu_tanh, "geglu.tanh")}
ENTRIES = {
    "gelu": Reference(gelu, "gelu", algorithms=_GELU),
    "silu": Reference(silu, "silu"),
    "swiglu": Reference(swiglu, "swiglu"),
    "geglu": Reference(geglu, "geglu", algorithms=_GEGLU),
    "relu": Reference(relu, "relu"),
    "sigmoid": Reference(sigmoid, "sigmoid"),
    "tanh": Reference(tanh, "tanh"),
    "softplus": Reference(softplus, "softplus"),
    "square": Reference(square, "square"),
    "cube": Reference(cube, "cube"),
}
