"""Activation functions and their derivatives, by the formulas of their exact values (rules/activations.py)."""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.doubles import functions
from kernels_core.doubles.arithmetic import add, divide, multiply, negate, scale, square, subtract
from kernels_core.doubles.functions import named
from kernels_core.doubles.normal import distribution
from kernels_core.doubles.number import DoubleDouble, number, select, unknown
from kernels_core.doubles.order import absolute, below, unordered
from kernels_core.doubles.record import Call, Evaluation, fine
from kernels_core.enclosure import Enclosure

ONE = 1.0
_CUBE = 0.044715


def _one_minus(x: DoubleDouble) -> DoubleDouble:
    return subtract(number(ONE), x)


def silu(call: Call, a: Any) -> DoubleDouble:
    """Return x sigmoid(x)."""
    x = fine(a)
    return multiply(x, functions.sigmoid(x))


def silu_backward(call: Call, grad: Any, a: Any) -> DoubleDouble:
    """Return g s (1 + x (1 - s)), 1 - s = sigmoid(-x)."""
    x = fine(a)
    slope = add(multiply(x, functions.sigmoid(negate(x))), number(ONE))
    return multiply(multiply(fine(grad), functions.sigmoid(x)), slope)


def _normal(call: Call, a: Enclosure) -> tuple[DoubleDouble, DoubleDouble]:
    """Return the distribution function of the normal distribution, and exp(-x^2 / 2).

    A function and its derivative read them one after the other, so those of the last operand are kept. It is told by
    its tensors: kept as well, their memory holds nothing else, and no step writes to what another one reads.
    """
    parts = (a.mid, a.low, a.rad)
    held, found = call.local.arithmetic.kept.get("normal", (None, None))
    if held is None or any(old is not new for old, new in zip(held, parts, strict=True)):
        found = distribution(fine(a))
        call.local.arithmetic.kept["normal"] = parts, found
    phi, gauss = found
    return phi, gauss


def _gelu_inner(x: DoubleDouble) -> DoubleDouble:
    """Return sqrt(2 / pi) (x + 0.044715 x^3)."""
    cubic = multiply(multiply(square(x), x), number(_CUBE))
    return multiply(named("sqrt(2 / pi)"), add(x, cubic))


def gelu(call: Call, a: Any, *, approximate: str = "none") -> DoubleDouble:
    """Return x Phi(x), or x (1 + tanh(...)) / 2 = x sigmoid(2 ...)."""
    x = fine(a)
    if approximate == "tanh":
        return multiply(x, functions.sigmoid(scale(_gelu_inner(x), 2.0)))
    return multiply(x, _normal(call, a)[0])


def gelu_backward(call: Call, grad: Any, a: Any, *, approximate: str = "none") -> DoubleDouble:
    """Return g (Phi + x Phi')."""
    x = fine(a)
    if approximate == "tanh":
        # (1 + t) / 2 = s and 1 - t^2 = 4 s (1 - s) for s = sigmoid(2 v); v' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
        twice = scale(_gelu_inner(x), 2.0)
        s, rest = functions.sigmoid(twice), functions.sigmoid(negate(twice))
        rate = add(multiply(number(3.0), multiply(number(_CUBE), square(x))), number(ONE))
        curve = multiply(multiply(scale(multiply(s, rest), 2.0), x), multiply(named("sqrt(2 / pi)"), rate))
        return multiply(fine(grad), add(s, curve))
    phi, gauss = _normal(call, a)
    return multiply(fine(grad), add(phi, multiply(x, multiply(gauss, named("1 / sqrt(2 pi)")))))


def sigmoid_backward(call: Call, grad: Any, output: Any) -> DoubleDouble:
    """Return g y (1 - y)."""
    y = fine(output)
    return multiply(fine(grad), multiply(y, _one_minus(y)))


def tanh_backward(call: Call, grad: Any, output: Any) -> DoubleDouble:
    """Return g (1 - y^2)."""
    return multiply(fine(grad), _one_minus(square(fine(output))))


def _beyond(z: DoubleDouble, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where z is above the limit, and where that is not known."""
    bar = number(float(limit))
    return below(bar, z), unordered(z, bar)


def softplus(call: Call, a: Any, beta: float = 1, threshold: float = 20) -> DoubleDouble:
    """Return log(1 + exp(beta x)) / beta, x above the threshold."""
    x = fine(a)
    z = multiply(x, number(float(beta)))
    above, open_ = _beyond(z, threshold)
    return unknown(select(above, x, divide(functions.softplus(z), number(float(beta)))), open_)


def softplus_backward(call: Call, grad: Any, a: Any, beta: float, threshold: float) -> DoubleDouble:
    """Return g sigmoid(beta x), g above the threshold."""
    z = multiply(fine(a), number(float(beta)))
    above, open_ = _beyond(z, threshold)
    return unknown(multiply(fine(grad), select(above, number(ONE), functions.sigmoid(z))), open_)


def log_sigmoid(call: Call, a: Any) -> list[DoubleDouble]:
    """Return -log(1 + exp(-x)), and the buffer exp(-|x|)."""
    x = fine(a)
    found = [negate(functions.softplus(negate(x))), functions.exp(negate(absolute(x)))]
    return found[: len(call.values)]


def log_sigmoid_backward(call: Call, grad: Any, a: Any, buffer: Any) -> DoubleDouble:
    """Return g sigmoid(-x)."""
    return multiply(fine(grad), functions.sigmoid(negate(fine(a))))


EVALUATIONS: dict[str, Evaluation] = {
    "aten.silu.default": silu,
    "aten.silu_backward.default": silu_backward,
    "aten.gelu.default": gelu,
    "aten.gelu_backward.default": gelu_backward,
    "aten.sigmoid_backward.default": sigmoid_backward,
    "aten.tanh_backward.default": tanh_backward,
    "aten.softplus.default": softplus,
    "aten.softplus_backward.default": softplus_backward,
    "aten.log_sigmoid_forward.default": log_sigmoid,
    "aten.log_sigmoid_backward.default": log_sigmoid_backward,
}
