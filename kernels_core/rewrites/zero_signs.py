"""Which zeros have a sign that every implementation agrees on, for the operations that read it.

0.0 and -0.0 are the same value, and kernels choose between them: PyTorch's own softshrink of a short tensor gives x 0,
which is -0 for x < 0, and that of 8 elements and more gives 0. copysign, signbit, the branch cut of atan2 and the pole
of 1/x tell the two apart. There a zero that was computed may have either sign, unless IEEE 754 (clause 6.3) and the
operations before it settle it:

    known     given from outside; moved, cast, negated, multiplied and added from known ones: -0 only by the rules of
              signs. Not where the number 0 is a factor or a term, which a kernel need not form, and no sum of many
              terms, whose accumulator may start from 0 or from the first term
    positive  0 and never -0: of |x|, exp(x), x x, a norm, integers. x + y is -0 only where both are, x - y only where
              x is, so that sums stay positive

An operation that is not named here has zeros of either sign.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from kernels_core.program import Program, Ref, Step
from kernels_core.rules import movement

_MOVES = frozenset(name.split(".")[1] for name in movement.FAMILY) | {
    "_to_copy", "convert_element_type", "where", "factored", "regrouped", "index", "index_select", "gather", "take",
    "embedding",
}  # fmt: skip
_POSITIVE = frozenset({
    "abs", "exp", "exp2", "sigmoid", "erfc", "softplus", "_softmax", "linalg_vector_norm", "var", "std", "hypot",
})  # fmt: skip
_KEEPS_POSITIVE = _MOVES | {
    "sum", "mean", "cumsum", "sqrt", "log1p", "amax", "amin", "max", "min", "maximum", "minimum", "relu", "clamp_min",
}  # fmt: skip
_KEEPS = _MOVES | {"neg", "sqrt", "add", "sub", "mul", "div"}
# Operands whose zeros an operation tells apart, by position.
_READS = {
    "copysign": (1,),
    "signbit": (0,),
    "atan2": (0, 1),
    "div": (1,),
    "reciprocal": (0,),
    "rsqrt": (0,),
    "pow": (0,),  # negative odd powers
    "digamma": (0,),
}


def with_free_zeros(program: Program) -> Program:
    """Return the program whose steps know which of their operands have zeros of either sign."""
    signs: dict[int, str] = {}
    steps = []
    for step in program.steps:
        free = tuple(place for place in _read(step) if not signs[step.operands[place].step])
        steps.append(dataclasses.replace(step, free_zeros=free) if free else step)
        signs[step.number] = _sign(step, signs)
    return dataclasses.replace(program, steps=tuple(steps))


def _base(step: Step) -> str:
    return step.name.split(".")[1] if "." in step.name else step.name


def _read(step: Step) -> tuple[int, ...]:
    """Return the places of the operands of which the step reads the sign of a zero."""
    base = _base(step)
    if base == "pow" and (isinstance(step.args[1], Ref) or step.args[1] >= 0 or step.args[1] % 2 != 1):
        return ()  # the pole of an even power is positive on both sides, and so is that of x^-0.5
    tensors = [k for k, arg in enumerate(step.args) if isinstance(arg, Ref)]
    return tuple(tensors.index(k) for k in _READS.get(base, ()) if k in tensors)


def _sign(step: Step, signs: dict[int, str]) -> str:
    """Return "positive", "known" or "" for the zeros of a step's results."""
    if not any(meta is not None and meta.dtype.is_floating_point for meta in step.metas):
        return "positive"
    base, found = _base(step), [signs[ref.step] for ref in step.operands]
    if _is_positive(step, base, found):
        return "positive"
    if not found:
        return "known"
    keeps = (base in _KEEPS and not _with_number_zero(step, base)) or _clamps_beside_zero(step, base)
    return "known" if keeps and all(found) else ""


def _is_positive(step: Step, base: str, found: list[str]) -> bool:
    if base in _POSITIVE or (base == "pow" and _is_even(step.args[1])):
        return True
    if base == "mul" and len(step.args) == 2 and step.args[0] == step.args[1]:
        return True
    if base == "add" and not step.kwargs.get("alpha"):
        return "positive" in found or _is_number(step.args[1])
    if base == "sub":
        return found[0] == "positive" and step.args[0] == step.operands[0]
    if base in ("mul", "div"):
        return found == ["positive"] and _is_number(step.args[1]) and step.args[1] > 0
    return base in _KEEPS_POSITIVE and bool(found) and all(sign == "positive" for sign in found)


def _is_number(value: Any) -> bool:
    """Return True for a Python number other than 0, which a kernel need not add."""
    return isinstance(value, (int, float)) and value != 0


def _is_even(exponent: Any) -> bool:
    return isinstance(exponent, (int, float)) and exponent > 0 and exponent % 2 == 0


def _with_number_zero(step: Step, base: str) -> bool:
    return base in ("mul", "add", "sub") and any(isinstance(v, (int, float)) and v == 0 for v in step.args)


def _clamps_beside_zero(step: Step, base: str) -> bool:
    """Return True for a clamp to numbers other than 0, which leaves zeros alone."""
    limits = [value for value in (*step.args[1:], *step.kwargs.values()) if value is not None]
    return base == "clamp" and all(isinstance(value, (int, float)) and value != 0 for value in limits)
