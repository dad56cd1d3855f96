"""Formulas that stand for one function: a reference writes 1 / (1 + exp(-x)), its kernels know sigmoid(x).

Such kernels differentiate from the result that they have stored, y (1 - y), as PyTorch does for its own sigmoid, where
the derivative of the formula as written never subtracts. Both are the same function of x; their roundings differ where
y is close to 1. The program rewritten here says what those kernels may do: it is evaluated beside the reference's own
program, and the larger bound of the two is granted (`Check`). The exact value stays that of the reference.

    n / (1 + exp(z))                     = n sigmoid(-z)       exp(z) / (1 + exp(z))     = sigmoid(z)
    (exp(z) - 1) / (exp(z) + 1)          = tanh(z / 2)         exp(z) - 1                = expm1(z)
    2 sigmoid(z) - 1                     = tanh(z / 2)         1 - 2 / (1 + exp(z))      = tanh(z / 2)

Derivatives from the result, PyTorch's own (derivatives.yaml): sigmoid y (1 - y), tanh 1 - y^2, expm1 y + 1; the last
one is also what PyTorch's ELU does when it works in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from kernels_core.program import Program, Ref, Step, without_dead_steps

_aten = torch.ops.aten
_ALREADY = frozenset({"aten.expm1.default", "prims.expm1.default"})  # ELU's own derivative does not read its result
_SAME = frozenset({"aten.detach.default", "aten.alias.default"})


class _Affine(NamedTuple):
    """scale * core + shift, with plain numbers; no core for a number alone."""

    scale: float
    core: Ref | None
    shift: float


def in_usual_functions(program: Program) -> Program | None:
    """Return the program of a forward with these formulas as single functions; None where it has none of them."""
    if any(step.name.startswith("exactref.") for step in program.steps):  # which has no derivative to be traced
        return None
    quotients = _Rewriting(program, _Rewriting.quotient).steps
    found = _Rewriting(dataclasses.replace(program, steps=tuple(quotients)), _Rewriting.difference).steps
    if tuple(found) == program.steps and not any(step.name in _ALREADY for step in program.steps):
        return None
    return without_dead_steps(dataclasses.replace(program, steps=tuple(found)))


def with_sigmoids(program: Program) -> Program | None:
    """Return a program with n / (1 + exp(z)) in its derivative steps as n sigmoid(-z); None where it has none.

    PyTorch differentiates logaddexp so, with a quotient that is 0 where exp(z) overflows, before the derivative is 0;
    kernels may take the sigmoid, which is 0 where exp(-z) is below the normal range.
    """
    if not any(step.backward and step.name == "aten.exp.default" for step in program.steps):
        return None
    found = _Rewriting(program, lambda self, step: step.backward and self.quotient(step)).steps
    return (
        None if tuple(found) == program.steps else without_dead_steps(dataclasses.replace(program, steps=tuple(found)))
    )


class _Rewriting:
    """Goes through a program once; every step sees the earlier ones as they have become."""

    def __init__(self, program: Program, rewrite: Callable[[_Rewriting, Step], bool]) -> None:
        self.steps: list[Step] = []
        self.seen: dict[int, Step] = {}
        self.constants = program.constants
        self.number = max((step.number for step in program.steps), default=0)
        for step in program.steps:
            floating = len(step.metas) == 1 and step.metas[0] is not None and step.metas[0].dtype.is_floating_point
            if step.op is None or not floating or not rewrite(self, step):
                self._add(step)

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self.seen[step.number] = step

    def quotient(self, step: Step) -> bool:
        """Rewrite n / (1 + exp(z)), where the step is one."""
        parts = self._fraction(step)
        if parts is None:
            return False
        above, below = parts
        denominator = self._affine(below)
        z = self._exponent(denominator.core, step)
        if z is None or denominator.scale != 1 or denominator.shift != 1:
            return False
        numerator = _Affine(0, None, above) if isinstance(above, (int, float)) else self._affine(above)
        same = numerator.core is not None and self._exponent(numerator.core, step) == z
        if same and (numerator.scale, numerator.shift) == (1, 0):
            self._replace(step, _aten.sigmoid.default, z)
        elif same and (numerator.scale, numerator.shift) == (1, -1):
            self._replace(step, _aten.tanh.default, self._new(step, _aten.mul.Tensor, z, 0.5))
        elif same:
            return False
        else:
            y = self._new(step, _aten.sigmoid.default, self._new(step, _aten.neg.default, z))
            self._replace(step, _aten.mul.Tensor, y, above)
        return True

    def difference(self, step: Step) -> bool:
        """Rewrite exp(z) - 1 and 2 sigmoid(z) - 1, or a multiple, where the step is one."""
        value = self._affine(Ref(step.number), step)
        if value.core is None or not value.shift or value.core.step not in self.seen:
            return False
        z = self._exponent(value.core, step)
        if z is not None and value.shift == -value.scale:
            self._replace(step, _aten.mul.Tensor, self._new(step, _aten.expm1.default, z), value.scale)
            return True
        inner = self.seen[value.core.step]
        if inner.name == "aten.sigmoid.default" and inner.metas == step.metas and value.scale == -2 * value.shift:
            half = self._new(step, _aten.mul.Tensor, inner.operands[0], 0.5)
            self._replace(step, _aten.mul.Tensor, self._new(step, _aten.tanh.default, half), -value.shift)
            return True
        return False

    def _fraction(self, step: Step) -> tuple[Any, Ref] | None:
        """Return numerator and denominator of a quotient of tensors."""
        if step.name == "aten.reciprocal.default" or (step.name == "aten.pow.Tensor_Scalar" and step.args[1] == -1):
            return 1.0, step.operands[0]
        if step.name == "aten.div.Tensor" and isinstance(step.args[1], Ref):
            return step.args[0], step.args[1]
        return None

    def _exponent(self, core: Ref | None, like: Step) -> Ref | None:
        """Return z where the core is exp(z) of the dtype of `like`, of one step for all that is computed alike."""
        step = self.seen.get(core.step) if core is not None else None
        if step is None or step.name != "aten.exp.default" or step.meta.dtype != like.meta.dtype:
            return None
        z = step.operands[0]
        repeats = (s for s in self.steps if _same_call(s, self.seen[z.step]))
        return Ref(next(repeats, self.seen[z.step]).number, z.output)

    def _affine(self, ref: Any, step: Step | None = None) -> _Affine:
        """Return a value as scale * core + shift; `step` is the one behind the ref where it was not added yet."""
        constant = self._constant(ref)
        if constant is not None:
            return _Affine(0, None, constant)
        step = step or self.seen[ref.step]
        as_it_is = _Affine(1, ref, 0)
        if step.op is None or step.meta.dtype not in {meta.dtype for meta in step.operand_metas}:
            return as_it_is
        name, args = step.name, step.args
        if name in _SAME:
            return self._affine(args[0])
        if name == "aten.neg.default":
            return _scaled(self._affine(args[0]), -1)
        if name in ("aten.mul.Tensor", "aten.div.Tensor"):
            a, b = self._affine(args[0]), self._affine(args[1])
            a, b = (b, a) if a.core is None and name == "aten.mul.Tensor" else (a, b)
            if b.core is not None or a.core is None or (b.shift == 0 and name == "aten.div.Tensor"):
                return as_it_is
            return _scaled(a, b.shift if name == "aten.mul.Tensor" else 1 / b.shift)
        if (
            name in ("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.rsub.Scalar")
            and not step.kwargs
            and len(args) == 2
        ):
            a, b = self._affine(args[0]), self._affine(args[1])
            a, b = (b, a) if name == "aten.rsub.Scalar" else (a, b)
            b = b if name.startswith("aten.add.") else _scaled(b, -1)
            if a.core is None or b.core is None:
                core = a.core or b.core
                return as_it_is if core is None else _Affine(a.scale + b.scale, core, a.shift + b.shift)
        return as_it_is

    def _constant(self, ref: Any) -> float | None:
        """Return the number that a Ref or an argument stands for."""
        if isinstance(ref, (int, float)):
            return float(ref)
        step = self.seen.get(ref.step) if isinstance(ref, Ref) else None
        if step is None:
            return None
        if step.name == "constant" and self.constants[step.number].numel() == 1:
            return float(self.constants[step.number].reshape(()))
        if step.name in ("aten.ones_like.default", "aten.ones.default"):
            return 1.0
        return float(step.args[1]) if step.name in ("aten.full.default", "aten.full_like.default") else None

    def _new(self, like: Step, op: Callable[..., Any], *args: Any) -> Ref:
        """Add a step of our own, as large as its largest operand."""
        self.number += 1
        metas = [self.seen[a.step].metas[a.output] for a in args if isinstance(a, Ref)]
        largest = max((m for m in metas if m is not None), key=lambda m: m.numel)
        self._add(made(self.number, like, op, args, largest._replace(dtype=like.meta.dtype), metas))
        return Ref(self.number)

    def _replace(self, step: Step, op: Callable[..., Any], *args: Any) -> None:
        """Add another operation under the number of a step."""
        metas = [self.seen[a.step].metas[a.output] for a in args if isinstance(a, Ref)]
        self._add(made(step.number, step, op, args, step.meta, metas))


def made(number: int, like: Step, op: Callable[..., Any], args: Any, meta: Any, metas: Any) -> Step:
    """Return a step of our own: an operation in the place of another, whose source and part of the graph it has."""
    return Step(number, op, str(op), tuple(args), {}, (meta,), like.source, like.backward, tuple(metas))


def _scaled(value: _Affine, factor: float) -> _Affine:
    return _Affine(value.scale * factor, value.core, value.shift * factor)


def _same_call(a: Step, b: Step) -> bool:
    return a.op is not None and a.op is b.op and a.args == b.args and a.kwargs == b.kwargs and a.metas == b.metas
