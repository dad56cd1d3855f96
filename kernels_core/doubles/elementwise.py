"""Elementwise operations by ATen's names: arithmetic, functions, comparisons and choices."""

from __future__ import annotations

import functools
import operator
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
from kernels_core.doubles.order import absolute, below, maximum, minimum, nonnegative, sign, unordered
from kernels_core.doubles.record import Call, Evaluation, Truth, doubtful, elementwise, fine
from kernels_core.enclosure import Enclosure
from kernels_core.rules.comparisons import compared

Tensor = torch.Tensor
_LARGEST_POWER = 64


def _floating(call: Call, evaluate: Callable[[], DoubleDouble], *operands: Any) -> DoubleDouble | Truth:
    """Return the value of a floating result; an integer one is the rule's, unless an operand is not known."""
    if call.value.floating:
        return evaluate()
    doubts = [doubt for doubt in map(doubtful, operands) if doubt is not None]
    return Truth(call.value.mid, torch.ones((), dtype=torch.bool) if doubts else None)


def plus(call: Call, a: Any, b: Any, *, alpha: float = 1) -> DoubleDouble | Truth:
    """Return a + alpha b."""
    return _floating(call, lambda: add(fine(a), _times(b, alpha)), a, b)


def minus(call: Call, a: Any, b: Any, *, alpha: float = 1) -> DoubleDouble | Truth:
    """Return a - alpha b."""
    return _floating(call, lambda: subtract(fine(a), _times(b, alpha)), a, b)


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
    return _floating(call, lambda: multiply(fine(a), fine(b)), a, b)


def quotient(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return a / b."""
    return divide(fine(a), fine(b))


def negative(call: Call, a: Any) -> DoubleDouble | Truth:
    """Return -a."""
    return _floating(call, lambda: negate(fine(a)), a)


def size(call: Call, a: Any) -> DoubleDouble | Truth:
    """Return |a|."""
    return _floating(call, lambda: absolute(fine(a)), a)


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


# Order ----------------------------------------------------------------------------------------------------------------


def _comparison(holds: Callable[[DoubleDouble, DoubleDouble], Tensor]) -> Evaluation:
    """Return the evaluation of a comparison, NaN and infinities compare as float64 does."""

    def evaluate(call: Call, a: Any, b: Any) -> Truth:
        x, y = fine(a), fine(b)
        operands = call.local.step.operands
        if len(operands) == 2 and operands[0] == operands[1]:  # a test for NaN
            return Truth(call.value.mid, ~x.rad.isfinite())
        plain = x.hi.isfinite() & y.hi.isfinite()
        return Truth(torch.where(plain, holds(x, y), call.value.mid), _open(x, y))

    return evaluate


def _open(x: DoubleDouble, y: DoubleDouble) -> Tensor:
    """Return where a comparison is not decided: certain infinities are in order with everything that is known."""
    known = (x.rad + y.rad).isfinite()
    return unordered(x, y) & (~known | (x.hi.isfinite() & y.hi.isfinite()))


def _equal(x: DoubleDouble, y: DoubleDouble) -> Tensor:
    return (x.hi == y.hi) & (x.lo == y.lo)


def classified(call: Call, a: Any) -> Truth:
    """Return isnan, isinf, isfinite as the rule has it."""
    return Truth(call.value.mid, ~fine(a).rad.isfinite())


def logic(call: Call, *operands: Any, **_: Any) -> Truth:
    """Return a logical operation as the rule has it, on booleans that are exact; open where one of them is."""
    doubts = [doubt for doubt in map(doubtful, operands) if doubt is not None]
    doubts += [fine(v).rad > 0 for v in operands if isinstance(v, Enclosure) and v.floating and v.rad is not None]
    return Truth(call.value.mid, functools.reduce(operator.or_, doubts) if doubts else None)


# Choices --------------------------------------------------------------------------------------------------------------


def _chosen(
    call: Call, condition: Tensor, doubt: Tensor | None, unsure: Tensor | None, a: Any, b: Any
) -> DoubleDouble | Truth:
    """Return a where the condition holds, else b.

    In the run at kinks, where the condition is unsure, the rule's midpoint stands for no exact value: it is the
    reference itself, which what follows is measured against. Elsewhere the rule's bound spans both sides there, which
    both must be known for.
    """
    if not call.value.floating:
        either = [d for d in (doubt, doubtful(a), doubtful(b)) if d is not None]
        return Truth(call.value.mid, torch.ones((), dtype=torch.bool) if either else None)
    sides = fine(a), fine(b)
    found = select(condition, *sides)
    found = found if doubt is None else unknown(found, doubt)
    if unsure is not None:
        found = unknown(found, unsure & ~(sides[0].rad + sides[1].rad).isfinite())
    return select(unsure, exactly(call.value.mid), found) if call.local.kinks and unsure is not None else found


def where(call: Call, condition: Any, a: Any, b: Any) -> DoubleDouble | Truth:
    """Return a where the condition holds, else b."""
    return _chosen(call, condition.mid != 0, doubtful(condition), condition.unsure, a, b)


def masked_fill(call: Call, a: Any, mask: Any, value: Any) -> DoubleDouble | Truth:
    """Return the value where the mask holds, else a."""
    return where(call, mask, value, a)


def _passed(call: Call, grad: Any, side: Enclosure, level: float) -> Any:
    """Return zero where a value is not above a level, else the gradient; NaN passes it."""
    x, bar = fine(side), number(float(level))
    unsure = compared(call.local, torch.le, side, level, kinked=True).unsure if call.local.kinks else None
    stopped = ~below(bar, x) & ~x.hi.isnan()
    return _chosen(call, stopped, _open(x, bar), unsure, 0.0, grad)


def threshold_backward(call: Call, grad: Any, a: Any, threshold: float) -> Any:
    """Return grad where x > threshold, else 0."""
    return _passed(call, grad, a, threshold)


def clamp(call: Call, a: Any, low: Any = None, high: Any = None) -> DoubleDouble | Truth:
    """Return min(max(a, low), high)."""

    def between() -> DoubleDouble:
        found = fine(a)
        found = found if low is None else maximum(found, fine(low))
        return found if high is None else minimum(found, fine(high))

    return _floating(call, between, a, low, high)


def clamp_max(call: Call, a: Any, high: Any) -> DoubleDouble | Truth:
    """Return min(a, high)."""
    return clamp(call, a, None, high)


def signs(call: Call, a: Any) -> DoubleDouble | Truth:
    """Return -1, 0 or 1."""
    return _floating(call, lambda: sign(fine(a)), a)


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
COMPARISONS: dict[str, Evaluation] = {
    "lt": _comparison(below),
    "gt": _comparison(lambda x, y: below(y, x)),
    "le": _comparison(lambda x, y: ~below(y, x)),
    "ge": _comparison(lambda x, y: ~below(x, y)),
    "eq": _comparison(_equal),
    "ne": _comparison(lambda x, y: ~_equal(x, y)),
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
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_not")

EVALUATIONS: dict[str, Evaluation] = {
    **{f"aten.{name}.default": elementwise(function) for name, function in _FUNCTIONS.items()},
    **{f"prims.{name}.default": elementwise(function) for name, function in _FUNCTIONS.items()},
    **{f"aten.{name}.{kind}": c for name, c in COMPARISONS.items() for kind in ("Tensor", "Scalar")},
    **{f"prims.{name}.default": comparison for name, comparison in COMPARISONS.items()},
    **_named("aten", dict.fromkeys(_CREATION, given) | dict.fromkeys(_EMPTY, nothing)),
    **{f"aten.{name}.default": logic for name in _LOGIC},
    **_named("aten", {
        "bitwise_and.Tensor": logic, "bitwise_or.Tensor": logic, "bitwise_xor.Tensor": logic,
        "add.Tensor": plus, "add.Scalar": plus_scalar, "sub.Tensor": minus, "sub.Scalar": minus_scalar,
        "rsub.Scalar": minus_reversed, "rsub.Tensor": minus_reversed, "mul.Tensor": times, "mul.Scalar": times,
        "div.Tensor": quotient, "div.Scalar": quotient, "neg.default": negative,
        "_neg_view.default": negative, "abs.default": size,
        "pow.Tensor_Scalar": power, "pow.Tensor_Tensor": power, "pow.Scalar": power,
        "isnan.default": classified, "isinf.default": classified, "isfinite.default": classified,
        "where.self": where, "where.ScalarSelf": where, "where.ScalarOther": where, "where.Scalar": where,
        "masked_fill.Scalar": masked_fill, "masked_fill.Tensor": masked_fill,
        "threshold_backward.default": threshold_backward, "relu.default": elementwise(nonnegative),
        "maximum.default": elementwise(maximum), "minimum.default": elementwise(minimum),
        "clamp.default": clamp, "clamp.Tensor": clamp, "clamp_min.default": clamp, "clamp_min.Tensor": clamp,
        "clamp_max.default": clamp_max, "clamp_max.Tensor": clamp_max,
        "sign.default": signs, "sgn.default": signs, "xlogy.Tensor": x_log_y, "_to_copy.default": identity,
    }),
    **_named("prims", {
        "add.default": plus, "sub.default": minus, "mul.default": times, "div.default": quotient,
        "neg.default": negative, "abs.default": size, "pow.default": power, "where.default": where,
        "maximum.default": elementwise(maximum), "minimum.default": elementwise(minimum), "sign.default": signs,
        "isfinite.default": classified, "convert_element_type.default": identity,
    }),
    "exactref.factored": identity,
    "exactref.regrouped.default": identity,
    "exactref.accumulated": accumulated,
    "exactref.ones": given,
}  # fmt: skip
