"""Elementwise arithmetic and functions, and tensors made of numbers, by ATen's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels_core.doubles import functions
from kernels_core.doubles.arithmetic import (
    add,
    divide,
    integer_power,
    multiply,
    negate,
    reciprocal,
    rsqrt,
    sqrt,
    square,
    subtract,
)
from kernels_core.doubles.number import DoubleDouble, exactly, number, select, unknown
from kernels_core.doubles.order import absolute, maximum, minimum, nonnegative, sign
from kernels_core.doubles.record import Call, Evaluation, Truth, doubtful, elementwise, fine, floating

Tensor = torch.Tensor
_LARGEST_POWER = 64


def plus(call: Call, a: Any, b: Any, *, alpha: float = 1) -> DoubleDouble | Truth:
    """Return a + alpha b."""
    return floating(call, lambda: add(fine(a), _times(b, alpha)), a, b)


def minus(call: Call, a: Any, b: Any, *, alpha: float = 1) -> DoubleDouble | Truth:
    """Return a - alpha b."""
    return floating(call, lambda: subtract(fine(a), _times(b, alpha)), a, b)


def plus_scalar(call: Call, a: Any, b: Any, alpha: float = 1) -> DoubleDouble | Truth:
    """Return a + alpha b for a number b."""
    return plus(call, a, b, alpha=alpha)


def minus_scalar(call: Call, a: Any, b: Any, alpha: float = 1) -> DoubleDouble | Truth:
    """Return a - alpha b for a number b."""
    return minus(call, a, b, alpha=alpha)


def minus_reversed(call: Call, a: Any, b: Any, alpha: float = 1) -> DoubleDouble | Truth:
    """Return b - alpha a."""
    return minus(call, b, a, alpha=alpha)


def _times(value: Any, alpha: float) -> DoubleDouble:
    return fine(value) if alpha == 1 else multiply(fine(value), number(float(alpha)))


def times(call: Call, a: Any, b: Any) -> DoubleDouble | Truth:
    """Return a b."""
    return floating(call, lambda: multiply(fine(a), fine(b)), a, b)


def quotient(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return a / b."""
    return divide(fine(a), fine(b))


def negative(call: Call, a: Any) -> DoubleDouble | Truth:
    """Return -a."""
    return floating(call, lambda: negate(fine(a)), a)


def size(call: Call, a: Any) -> DoubleDouble | Truth:
    """Return |a|."""
    return floating(call, lambda: absolute(fine(a)), a)


def accumulated(call: Call, *terms: Any) -> DoubleDouble:
    """Return the sum of tensors."""
    found = fine(terms[0])
    for term in terms[1:]:
        found = add(found, fine(term))
    return found


def identity(call: Call, a: Any, *_: Any, **__: Any) -> DoubleDouble | Truth:
    """Return a: a cast, to the real numbers that it stands for."""
    if call.value.floating:
        return fine(a)
    return Truth(call.value.mid, call.value.unsure if a.floating else doubtful(a))


def given(call: Call, *_: Any, **__: Any) -> DoubleDouble | Truth:
    """Return what the rule says: a constant."""
    return exactly(call.value.mid) if call.value.floating else Truth(call.value.mid, None)


# Powers ---------------------------------------------------------------------------------------------------------------


def power(call: Call, a: Any, p: Any) -> DoubleDouble | Truth:
    """Return a^p: products for whole numbers p, roots for halves, exp(p log a) for others."""
    if not call.value.floating:
        return Truth(call.value.mid, None if doubtful(a) is None else torch.ones((), dtype=torch.bool))
    if isinstance(p, (int, float)):
        return _fixed_power(fine(a), float(p))
    return functions.power(fine(a), fine(p))


def _fixed_power(x: DoubleDouble, p: float) -> DoubleDouble:
    if p == 0:
        return number(1.0)
    if p.is_integer() and abs(p) <= _LARGEST_POWER:
        found = integer_power(x, int(abs(p)))
        return found if p > 0 else reciprocal(found)
    if (2 * p).is_integer() and abs(p) <= 8:
        root = sqrt(x)
        found = root if abs(p) == 0.5 else multiply(root, integer_power(x, int(abs(p))))
        return found if p > 0 else reciprocal(found)
    return functions.power(x, number(p))


def signs(call: Call, a: Any) -> DoubleDouble | Truth:
    """Return -1, 0 or 1."""
    return floating(call, lambda: sign(fine(a)), a)


def x_log_y(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return a log b, zero where a is."""
    x = fine(a)
    return select((x.hi == 0) & (x.rad == 0), number(0.0), multiply(x, functions.log(fine(b))))


def nothing(call: Call, *_: Any, **__: Any) -> DoubleDouble | Truth:
    """Return what nothing is known of: memory that nobody has written to."""
    if not call.value.floating:
        return Truth(call.value.mid, torch.ones((), dtype=torch.bool))
    return unknown(exactly(call.value.mid), torch.ones((), dtype=torch.bool))


def _named(prefix: str, evaluations: dict[str, Evaluation]) -> dict[str, Evaluation]:
    return {f"{prefix}.{name}": evaluation for name, evaluation in evaluations.items()}


_FUNCTIONS: dict[str, Callable[..., DoubleDouble]] = {
    "exp": functions.exp,
    "exp2": functions.exp2,
    "expm1": functions.expm1,
    "log": functions.log,
    "log2": functions.log2,
    "log10": functions.log10,
    "log1p": functions.log1p,
    "sin": functions.sin,
    "cos": functions.cos,
    "tan": functions.tan,
    "atan": functions.atan,
    "sinh": functions.sinh,
    "cosh": functions.cosh,
    "tanh": functions.tanh,
    "sigmoid": functions.sigmoid,
    "erf": functions.erf,
    "erfc": functions.erfc,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "reciprocal": reciprocal,
    "square": square,
}
_CREATION = (
    "zeros.default",
    "zeros_like.default",
    "ones.default",
    "ones_like.default",
    "new_zeros.default",
    "new_ones.default",
    "full.default",
    "full_like.default",
    "new_full.default",
    "scalar_tensor.default",
    "arange.default",
    "arange.start",
    "arange.start_step",
    "eye.default",
    "eye.m",
    "fill.Scalar",
)
_EMPTY = ("empty.memory_format", "empty_like.default", "empty_strided.default", "new_empty.default",
          "new_empty_strided.default", "empty_permuted.default")  # fmt: skip

EVALUATIONS: dict[str, Evaluation] = {
    **{f"aten.{name}.default": elementwise(function) for name, function in _FUNCTIONS.items()},
    **{f"prims.{name}.default": elementwise(function) for name, function in _FUNCTIONS.items()},
    **_named("aten", dict.fromkeys(_CREATION, given) | dict.fromkeys(_EMPTY, nothing)),
    **_named("aten", {
        "add.Tensor": plus, "add.Scalar": plus_scalar, "sub.Tensor": minus, "sub.Scalar": minus_scalar,
        "rsub.Scalar": minus_reversed, "rsub.Tensor": minus_reversed, "mul.Tensor": times, "mul.Scalar": times,
        "div.Tensor": quotient, "div.Scalar": quotient, "neg.default": negative,
        "_neg_view.default": negative, "abs.default": size,
        "pow.Tensor_Scalar": power, "pow.Tensor_Tensor": power, "pow.Scalar": power,
        "relu.default": elementwise(nonnegative),
        "maximum.default": elementwise(maximum), "minimum.default": elementwise(minimum),
        "sign.default": signs, "sgn.default": signs, "xlogy.Tensor": x_log_y, "_to_copy.default": identity,
    }),
    **_named("prims", {
        "add.default": plus, "sub.default": minus, "mul.default": times, "div.default": quotient,
        "neg.default": negative, "abs.default": size, "pow.default": power,
        "maximum.default": elementwise(maximum), "minimum.default": elementwise(minimum), "sign.default": signs,
        "convert_element_type.default": identity,
    }),
    "exactref.factored": identity,
    "exactref.regrouped.default": identity,
    "exactref.accumulated": accumulated,
    "exactref.ones": given,
}  # fmt: skip
