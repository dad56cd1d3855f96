"""Gradients of several terms: autograd adds them one after the other, a kernel in whatever order it likes.

A chain of additions that the derivative formulas made is replaced by one step, `exactref.accumulated`, which grants any
order of its terms (rules/accumulated.py). A partial sum that something else reads stays as it is.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

from kernels_core.program import Program, Ref, Step, without_dead_steps
from kernels_core.rules.accumulated import total

FEWEST = 3  # two terms have one order


def with_accumulations(program: Program) -> Program:
    """Return the program with every such chain of three terms or more as one step."""
    steps = {step.number: step for step in program.steps}
    reads = collections.Counter(ref for step in program.steps for ref in step.operands)
    reads.update(ref for ref in program.outputs.values() if ref is not None)
    inner = {
        ref.step
        for step in program.steps
        if _adds(step)
        for ref in step.operands
        if reads[ref] == 1 and _adds(steps[ref.step]) and steps[ref.step].meta == step.meta
    }
    changed: dict[int, Step] = {}
    for step in program.steps:
        if _adds(step) and step.number not in inner:
            terms = _terms(step, steps, inner)
            if len(terms) >= FEWEST:
                metas = (step.meta,) * len(terms)
                changed[step.number] = dataclasses.replace(
                    step, op=total, name="exactref.accumulated", args=tuple(terms), operand_metas=metas
                )
    if not changed:
        return program
    found = tuple(changed.get(step.number, step) for step in program.steps)
    return without_dead_steps(dataclasses.replace(program, steps=found))


def _adds(step: Step) -> bool:
    """Return True for a + b of two tensors of the result's own shape and format, made by a derivative formula."""
    return (
        step.backward
        and step.name == "aten.add.Tensor"
        and not step.kwargs
        and len(step.operands) == 2
        and step.meta.dtype.is_floating_point
        and all(meta == step.meta for meta in step.operand_metas)
    )


def _terms(step: Step, steps: Mapping[int, Step], inner: set[int]) -> list[Ref]:
    found: list[Ref] = []
    for ref in step.operands:
        found += _terms(steps[ref.step], steps, inner) if ref.step in inner else [ref]
    return found
