"""Who attains the extremum of a group: a comparison that is told the others of the group.

PyTorch's derivative of scatter_reduce and index_reduce by amax or amin is  g / count * (x == extremum), with the count
of equal elements. Taken literally, the comparison of a computed value with the extremum that it is itself is a tie that
any rounding could break, the count may be 0, and nothing is known of the gradient, also where one element is the
largest by far. Here the comparison becomes a step that knows the group (rules/scattered_extrema.py). The exact value is
unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from kernels_core.program import Program, Ref, Step
from kernels_core.rewrites.extremum_masks import replaced

_READS: Mapping[str, str] = {
    "aten.scatter_reduce.two": "aten.gather.default",
    "aten.index_reduce.default": "aten.index_select.default",
}
_SIGNS: Mapping[str, int] = {"amax": 1, "amin": -1}


def with_attained_extrema(program: Program) -> Program:
    """Return the program with every such comparison told of its group."""
    steps = {step.number: step for step in program.steps}
    changed = {
        step.number: found
        for step in program.steps
        if step.backward and step.name == "aten.eq.Tensor" and (found := _told(step, steps, program)) is not None
    }
    if not changed:
        return program
    return dataclasses.replace(program, steps=tuple(changed.get(s.number, s) for s in program.steps))


def _told(equal: Step, steps: Mapping[int, Step], program: Program) -> Step | None:
    if len(equal.operands) != 2:
        return None
    own, other = equal.operands
    read = steps[other.step]
    reduced = steps[read.operands[0].step] if read.operands else read
    if _READS.get(reduced.name) != read.name or len(reduced.args) < 5 or reduced.args[4] not in _SIGNS:
        return None
    base, dim, index, source = reduced.args[:4]
    if own != source or read.args[1] != dim or not _same_tensor(read.args[2], index, program):
        return None
    metas = dict(zip(reduced.operands, reduced.operand_metas, strict=True))
    if metas[source].shape != equal.shape or not metas[base].shape:
        return None
    settings = {
        "dim": dim,
        "sign": _SIGNS[reduced.args[4]],
        "include": bool(reduced.argument(5, "include_self", True)),
    }
    return dataclasses.replace(
        equal, op=replaced, name="exactref.attained", args=(own, other, base, index), kwargs=settings,
        operand_metas=(*equal.operand_metas, metas[base], metas[index]),
    )  # fmt: skip


def _same_tensor(a: Ref, b: Ref, program: Program) -> bool:
    if a == b:
        return True
    first, second = program.constants.get(a.step), program.constants.get(b.step)
    return first is not None and second is not None and torch.equal(first, second)
