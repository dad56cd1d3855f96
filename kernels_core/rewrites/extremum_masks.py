"""The derivative of a maximum, as one step: PyTorch builds it from a comparison that knows nothing of the others.

PyTorch's derivative of m = amax(x) is  g / count(x == m) * (x == m).  Taken literally, the comparison of the largest
element with m is a tie that any rounding could break, also where one element is the maximum by far. Here the mask and
its count become one step, the weight w = mask / count with its own rule (rules/extrema.py): certain where one element
is certainly the largest, and the hull [0, 1] for elements that roundings (or, at kinks, exact ties) leave contested:
any split among them is then accepted. The exact value is unchanged. The tangent of m is the sum of
where(x == m, t, 0) / count(x == m), so of w t in the same way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from kernels_core.program import Meta, Program, Ref, Step, without_dead_steps
from kernels_core.rules.cones import normal_dims

_EXTREMA: Mapping[str, int] = {
    "aten.amax.default": 1, "prims.amax.default": 1, "aten.max.default": 1,
    "aten.amin.default": -1, "prims.amin.default": -1, "aten.min.default": -1,
}  # fmt: skip
_SHAPES = frozenset({
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.expand.default",
    "aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "prims.broadcast_in_dim.default",
    "aten.alias.default",
})  # fmt: skip
_EQUAL = frozenset({"aten.eq.Tensor", "prims.eq.default"})
_OR = frozenset({"aten.bitwise_or.Tensor", "prims.bitwise_or.default", "aten.logical_or.default"})
_SUM = frozenset({"aten.sum.default", "aten.sum.dim_IntList", "prims.sum.default"})
_ABS = frozenset({"aten.abs.default", "prims.abs.default"})
_TIMES = frozenset({"aten.mul.Tensor", "prims.mul.default"})
_CHOICES = frozenset({"aten.where.self"})


def replaced(*_: Any, **__: Any) -> None:
    """Stand for an ATen operation in steps that have a rule but no operation of PyTorch."""


def with_extremum_weights(program: Program) -> Program:
    """Return the program with every such mask replaced by its weight, and the count by ones."""
    steps = {step.number: step for step in program.steps}
    changed: dict[int, Step] = {}
    for step in program.steps:
        if step.backward and step.name in _EQUAL and len(step.operands) == 2:
            changed.update(_rewritten(step, steps))
    if not changed:
        return program
    return without_dead_steps(
        dataclasses.replace(program, steps=tuple(changed.get(s.number, s) for s in program.steps))
    )


class _Extremum(NamedTuple):
    """What an extremum is taken of: `source`, or its magnitude."""

    source: Ref
    magnitude: bool
    dims: tuple[int, ...]
    sign: int


def _rewritten(equal: Step, steps: Mapping[int, Step]) -> dict[int, Step]:
    for own, other in (equal.operands, equal.operands[::-1]):
        root = _root(other, steps)
        if root is None or not _is_source(own, root, steps):
            continue
        mask = _whole_mask(equal, steps)
        users = _users(mask, steps)
        counts = [user for user in users if user.name in _SUM]
        x = steps[own.step].metas[own.output]
        choices = [user for user in users if _is_choice(user, mask, steps)]
        known = [user for user in users if user.name in _SUM | _TIMES or user in choices]
        if x is None or x.shape != equal.shape or not counts or len(known) < len(users):
            return {}
        if any(normal_dims(count.argument(1, "dim"), len(x.shape)) != root.dims for count in counts):
            return {}
        settings = {"dims": root.dims, "sign": root.sign}
        weight = dataclasses.replace(mask, op=replaced, name="exactref.extremum_weight", args=(own,), kwargs=settings,
                                     operand_metas=(x,), metas=(Meta(x.shape, x.dtype),))  # fmt: skip
        ones = {
            c.number: dataclasses.replace(c, op=replaced, name="exactref.ones", args=(), kwargs={}, operand_metas=())
            for c in counts
        }
        products = {c.number: _as_product(c, mask) for c in choices}
        return {mask.number: weight, **ones, **products}
    return {}


def _is_choice(user: Step, mask: Step, steps: Mapping[int, Step]) -> bool:
    """Return True for where(mask, value, 0)."""
    if user.name not in _CHOICES or user.args[0] != Ref(mask.number) or not isinstance(user.args[2], Ref):
        return False
    other = steps[user.args[2].step]
    return other.name == "aten.scalar_tensor.default" and other.args[0] == 0


def _as_product(choice: Step, mask: Step) -> Step:
    """Return value * weight in place of where(mask, value, 0)."""
    value, meta = choice.args[1], choice.operand_metas[1]
    return dataclasses.replace(choice, op=torch.ops.aten.mul.Tensor, name="aten.mul.Tensor",
                               args=(value, Ref(mask.number)), operand_metas=(meta, choice.meta))  # fmt: skip


def _root(ref: Ref, steps: Mapping[int, Step]) -> _Extremum | None:
    """Return the extremum behind views, None where there is none."""
    step = steps[ref.step]
    while step.name in _SHAPES:
        ref = step.operands[0]
        step = steps[ref.step]
    if step.op is None or not step.operands:
        return None
    rank = len(step.operand_metas[0].shape)
    if step.name in _EXTREMA:
        return _Extremum(step.operands[0], False, normal_dims(step.argument(1, "dim"), rank), _EXTREMA[step.name])
    if step.name == "aten.aminmax.default":
        return _Extremum(step.operands[0], False, normal_dims(step.kwargs.get("dim"), rank), 1 if ref.output else -1)
    if step.name == "aten.linalg_vector_norm.default" and math.isinf(float(step.argument(1, "ord", 2))):
        sign = 1 if float(step.argument(1, "ord")) > 0 else -1
        return _Extremum(step.operands[0], True, normal_dims(step.argument(2, "dim"), rank), sign)
    return None


def _is_source(own: Ref, root: _Extremum, steps: Mapping[int, Step]) -> bool:
    if not root.magnitude:
        return _same(root.source, own, steps)
    return steps[own.step].name in _ABS and _same(root.source, steps[own.step].operands[0], steps)


def _same(a: Ref, b: Ref, steps: Mapping[int, Step]) -> bool:
    """Return True where two values are computed alike (abs(x) may be there twice)."""
    if a == b:
        return True
    first, second = steps[a.step], steps[b.step]
    if (
        first.op is None
        or first.name != second.name
        or len(first.operands) != len(second.operands)
        or a.output != b.output
    ):
        return False
    plain = [[x for x in s.args if not isinstance(x, Ref)] for s in (first, second)]
    return plain[0] == plain[1] and all(
        _same(p, q, steps) for p, q in zip(first.operands, second.operands, strict=True)
    )


def _users(step: Step, steps: Mapping[int, Step]) -> list[Step]:
    return [user for user in steps.values() if any(ref.step == step.number for ref in user.operands)]


def _whole_mask(equal: Step, steps: Mapping[int, Step]) -> Step:
    """Return the step whose result is the mask: PyTorch may add "or both are NaN"."""
    users = _users(equal, steps)
    return users[0] if len(users) == 1 and users[0].name in _OR else equal
