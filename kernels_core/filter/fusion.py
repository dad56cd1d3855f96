"""Steps that the filter evaluates together, because one rule for all of them reads the tiles less often.

`fused` replaces the operations of a normalisation, c = x - mean(x), y = c (mean(c^2) + eps)^(-1/2), and of PyTorch's
derivative of it, by the two steps of rules/normalization.py. Their bounds are the compositions of the rules that they
stand for. Only the filter sees them; where a program is written otherwise it stays as it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch

from kernels_core.program import Meta, Program, Ref, Step, without_dead_steps
from kernels_core.rules.cones import normal_dims

_COMPUTED = (torch.float32, torch.float64)  # narrower results are rounded after every operation


@dataclasses.dataclass(frozen=True)
class _Norm:
    """A normalisation found in a program: x, c = x - mean, r = (variance + eps)^(-1/2), y = c r."""

    y: Step
    x: Ref
    c: Ref
    r: Ref
    dims: tuple[int, ...]
    eps: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Of x and of y."""
        return self.y.shape

    @property
    def row(self) -> Meta:
        """Of the mean and of r."""
        return Meta(tuple(1 if d in self.dims else n for d, n in enumerate(self.shape)), self.y.meta.dtype)


def fused(program: Program) -> Program:
    """Return the program with its normalisations and their derivatives as single steps; step numbers are kept."""
    steps = {step.number: step for step in program.steps}
    norms = [norm for step in program.steps if (norm := _norm(step, steps)) is not None]
    if not norms:
        return program
    calls = _Calls(program)
    changed: dict[int, Step] = {}
    for norm in norms:
        changed[norm.y.number] = _forward(norm)
        for step in program.steps:
            gradient = _gradient(norm, step, calls)
            if gradient is not None:
                changed[gradient.step] = _backward(norm, step.args[0], steps[gradient.step])
    found = tuple(changed.get(step.number, step) for step in program.steps)
    return without_dead_steps(dataclasses.replace(program, steps=found))


def _norm(y: Step, steps: Mapping[int, Step]) -> _Norm | None:
    """Return the normalisation that ends in this product, if it does."""

    def came_from(ref: Any, name: str) -> tuple[Any, ...] | None:
        step = steps[ref.step] if isinstance(ref, Ref) else None
        return step.args if step is not None and step.name == name and not step.kwargs else None

    if y.name != "aten.mul.Tensor" or y.backward or y.meta.dtype not in _COMPUTED:
        return None
    c, r = y.args
    root = came_from(r, "aten.rsqrt.default")
    shifted = root and came_from(root[0], "aten.add.Tensor")
    variance = shifted and came_from(shifted[0], "aten.mean.dim")
    square = variance and came_from(variance[0], "aten.pow.Tensor_Scalar")
    centred = came_from(c, "aten.sub.Tensor")
    mean = centred and came_from(centred[1], "aten.mean.dim")
    if not (shifted and variance and square and centred and mean) or square != (c, 2) or mean[0] != centred[0]:
        return None
    shape = y.shape
    dims = [normal_dims(args[1], len(shape)) if len(args) == 3 and args[2] else None for args in (mean, variance)]
    whole = isinstance(mean[0], Ref) and steps[mean[0].step].metas[mean[0].output] == y.meta
    if not whole or dims[0] is None or dims[0] != dims[1] or not isinstance(shifted[1], (int, float)):
        return None
    return _Norm(y, mean[0], c, r, dims[0], float(shifted[1]))


class _Calls:
    """The steps of a program by what they compute: `calls("aten.mul.Tensor", a, b)` is the Ref of a * b."""

    def __init__(self, program: Program) -> None:
        called = [step for step in program.steps if step.op is not None and not step.kwargs]
        self._found = {(step.name, *_normal(step)): Ref(step.number) for step in called}

    def __call__(self, name: str, *args: Any) -> Ref:
        """Return the result of this call; LookupError where the program has none."""
        call = (name, *args)
        return self._found[call]


def _normal(step: Step) -> tuple[Any, ...]:
    """Return the arguments in a form that can be compared, the dimensions of a sum as non-negative numbers."""
    args = tuple(arg if isinstance(arg, (Ref, int, float)) else str(arg) for arg in step.args)
    if step.name != "aten.sum.dim_IntList":
        return args
    return args[0], normal_dims(step.args[1], len(step.operand_metas[0].shape)), *args[2:]


def _gradient(norm: _Norm, step: Step, calls: _Calls) -> Ref | None:
    """Return dx where `step` is h c, the first operation of PyTorch's derivative of the normalisation, else None."""
    if step.name != "aten.mul.Tensor" or not step.backward or step.args[1] != norm.c or step.meta.shape != norm.shape:
        return None
    h, n = step.args[0], math.prod(norm.shape[d] for d in norm.dims)
    shape = str(list(norm.shape))
    try:
        dot = calls("aten.sum.dim_IntList", Ref(step.number), norm.dims, True)
        slope = calls("aten.mul.Tensor", calls("aten.mul.Scalar", dot, -0.5),
                      calls("aten.pow.Tensor_Scalar", norm.r, 3))  # fmt: skip
        slope = calls("aten.div.Scalar", calls("aten.expand.default", slope, shape), n)
        twice = calls("aten.mul.Scalar", calls("aten.pow.Tensor_Scalar", norm.c, 1.0), 2.0)
        g = calls("aten.add.Tensor", calls("aten.mul.Tensor", h, norm.r), calls("aten.mul.Tensor", slope, twice))
        total = calls("aten.sum.dim_IntList", calls("aten.neg.default", g), norm.dims, True)
        middle = calls("aten.div.Scalar", calls("aten.expand.default", total, shape), n)
        return calls("aten.add.Tensor", g, middle)
    except LookupError:
        return None


def _forward(norm: _Norm) -> Step:
    row = norm.row
    return dataclasses.replace(norm.y, name="fused.normalize", args=(norm.x, norm.dims, norm.eps),
                               metas=(norm.y.meta, row, row), operand_metas=(norm.y.meta,))  # fmt: skip


def _backward(norm: _Norm, h: Ref, dx: Step) -> Step:
    operands = (dx.meta, dx.meta, norm.row, norm.row)
    args = (h, norm.x, Ref(norm.y.number, 1), Ref(norm.y.number, 2), norm.dims)
    return dataclasses.replace(dx, name="fused.normalize_backward", args=args, operand_metas=operands)
