"""The reference as PyTorch runs it: every step of the program by its own ATen operation, in the declared dtypes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from kernels_core.audit.parts import Part
from kernels_core.audit.pieces import Read, partly, perform, runs, whole
from kernels_core.audit.sample import spread
from kernels_core.enclosure import exactly
from kernels_core.filter.arithmetic import Arithmetic
from kernels_core.filter.evaluation import evaluate_step
from kernels_core.filter.tiles import Run
from kernels_core.profiles import Profile
from kernels_core.program import Program, Ref, Step, replace_refs

Apply = Callable[[Run, Mapping[Ref, Any], set[Ref]], Mapping[Ref, Any]]


def evaluate(
    program: Program,
    inputs: Mapping[str, torch.Tensor],
    profile: Profile,
    narrowed: Read = lambda operation, operand: operand,
    partial: bool = False,
) -> dict[str, Any]:
    """Return the outputs by name, each in its own dtype.

    Args:
        program: to run.
        inputs: by name.
        profile: for steps of our own.
        narrowed: what an operation reads in the place of an operand.
        partial: of what nothing but a result is made of compute only a part, and return a Part.
    """
    program, arithmetic = _without_grants(program), Arithmetic(profile)
    ends = _only_results(program) if partial else frozenset()

    def apply(run: Run, values: Mapping[Ref, torch.Tensor], wanted: set[Ref]) -> Mapping[Ref, Any]:
        if len(run.steps) > 1:
            return whole(run, values, narrowed, wanted - ends) | partly(run, values, narrowed, wanted & ends)
        (step,) = run.steps
        return by_output(step, alone(step, values))

    def alone(step: Step, values: Mapping[Ref, torch.Tensor]) -> list[Any]:
        operands = [values[ref] for ref in step.operands]
        if step.name == "aten.mm.default" and step.shape[0] > 2 * ROWS and Ref(step.number) in ends:
            return [_some_rows(*(narrowed(step.name, operand) for operand in operands))]
        if step.name.startswith("exactref."):
            return _by_rule(step, values, arithmetic)
        return perform(step, operands, narrowed)

    with torch.no_grad():
        return walk(program, inputs, apply, runs(program))


ROWS = 128  # of a product, enough to know the size of its errors


def _without_grants(program: Program) -> Program:
    """Return the program without steps that grant roundings and compute nothing."""
    same: dict[Ref, Ref] = {}
    kept: list[Step] = []
    for step in program.steps:
        args, kwargs = replace_refs((step.args, dict(step.kwargs)), lambda ref: same.get(ref, ref))
        if step.name in ("exactref.factored", "exactref.regrouped.default"):
            same[Ref(step.number)] = args[0]
        else:
            kept.append(dataclasses.replace(step, args=args, kwargs=kwargs) if step.operands else step)
    outputs = {name: None if ref is None else same.get(ref, ref) for name, ref in program.outputs.items()}
    return dataclasses.replace(program, steps=tuple(kept), outputs=outputs)


def _only_results(program: Program) -> frozenset[Ref]:
    """Return what nothing but the caller reads."""
    read = {ref for step in program.steps for ref in step.operands}
    return frozenset(ref for ref in program.outputs.values() if ref is not None and ref not in read)


def _some_rows(a: torch.Tensor, b: torch.Tensor) -> Part:
    rows, width = spread(a.shape[0], a.device, ROWS), b.shape[1]
    return Part([(row * width, (row + 1) * width) for row in rows.tolist()], [a[rows] @ b])


def _by_rule(step: Step, values: Mapping[Ref, torch.Tensor], arithmetic: Arithmetic) -> list[Any]:
    """Evaluate a step of our own, which has no ATen operation, by its rule on exact operands."""
    operands = {ref: exactly(values[ref]) for ref in step.operands}
    found = evaluate_step(step, operands, arithmetic)
    return [
        None if value is None or meta is None else value.mid.to(meta.dtype)
        for value, meta in zip(found, step.metas, strict=True)
    ]


def by_output(step: Step, results: Iterable[Any]) -> dict[Ref, Any]:
    """Return the results of a step by Ref."""
    return {Ref(step.number, output): value for output, value in enumerate(results)}


def walk(
    program: Program, inputs: Mapping[str, Any], apply: Apply, parts: Sequence[Run] | None = None
) -> dict[str, Any]:
    """Return the outputs of a program; values are dropped after their last use.

    Args:
        program: to evaluate.
        inputs: by name.
        apply: evaluates the steps of one part, given all values so far and which results are wanted.
        parts: the steps in an order that respects dependence; one by one where they are not given.
    """
    parts = [Run([step], ()) for step in program.steps if step.op is not None] if parts is None else parts
    values: dict[Ref, Any] = {Ref(number): inputs[name] for name, number in program.inputs.items()}
    values |= {Ref(number): tensor for number, tensor in program.constants.items()}
    wanted = {ref for ref in program.outputs.values() if ref is not None}
    last = {ref: part for part, run in enumerate(parts) for step in run.steps for ref in step.operands}
    read: dict[int, set[Ref]] = {}
    for ref in (*last, *wanted):
        read.setdefault(ref.step, set()).add(ref)
    for part, run in enumerate(parts):
        mine = {ref for step in run.steps for ref in read.get(step.number, ())}
        kept = {ref for ref in mine if ref in wanted or last[ref] > part}
        found = apply(run, values, kept)
        values |= {ref: found[ref] for ref in kept}
        for ref in {ref for step in run.steps for ref in step.operands}:
            if last[ref] == part and ref not in wanted:
                values.pop(ref, None)
    return {name: values[ref] for name, ref in program.outputs.items() if ref is not None}
