"""The reference as PyTorch runs it: every step of the program by its own ATen operation, in the declared dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels_core.arithmetic import Arithmetic
from kernels_core.audit.sample import spread
from kernels_core.enclosure import exactly
from kernels_core.evaluation import evaluate_step
from kernels_core.profiles import Profile
from kernels_core.program import Program, Ref, Step, replace_refs

Apply = Callable[[Step, Mapping[Ref, Any]], list[Any]]


def evaluate(
    program: Program,
    inputs: Mapping[str, torch.Tensor],
    profile: Profile,
    narrowed: Callable[[str, torch.Tensor], torch.Tensor] = lambda operation, operand: operand,
    some_rows: bool = False,
) -> dict[str, torch.Tensor]:
    """Return the outputs by name, each in its own dtype.

    Args:
        program: to run.
        inputs: by name.
        profile: for steps of our own.
        narrowed: what an operation reads in the place of an operand.
        some_rows: of matrix products that nothing but a result is made of, compute some rows only; the others are NaN.
    """
    arithmetic = Arithmetic(profile)
    last = _last_products(program) if some_rows else frozenset()

    def apply(step: Step, values: Mapping[Ref, torch.Tensor]) -> list[Any]:
        if step.name == "exactref.factored":  # grants a rounding, computes nothing
            return [values[step.operands[0]]]
        if step.name.startswith("exactref."):
            return _by_rule(step, values, arithmetic)
        args, kwargs = replace_refs((step.args, dict(step.kwargs)), lambda ref: narrowed(step.name, values[ref]))
        if step.number in last:
            return [_some_rows(*args)]
        found = step.op(*args, **kwargs)  # type: ignore[misc]
        return list(found) if isinstance(found, (tuple, list)) else [found]

    with torch.no_grad():
        return walk(program, inputs, apply)


ROWS = 128  # of a product, enough to know the size of its errors


def _last_products(program: Program) -> frozenset[int]:
    """Return the plain matrix products that only casts and results read, and that have many rows."""
    read_by: dict[int, set[str]] = {}
    for step in program.steps:
        for ref in step.operands:
            read_by.setdefault(ref.step, set()).add(step.name)
    last: set[int] = set()
    for step in program.steps:
        readers = read_by.get(step.number, set())
        if step.name == "aten.mm.default" and step.shape[0] > 2 * ROWS and readers <= {"exactref.factored"}:
            last.add(step.number)
    return frozenset(last)


def _some_rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows = spread(a.shape[0], a.device, ROWS)
    product = torch.full((a.shape[0], b.shape[1]), torch.nan, dtype=a.dtype, device=a.device)
    product[rows] = a[rows] @ b
    return product


def _by_rule(step: Step, values: Mapping[Ref, torch.Tensor], arithmetic: Arithmetic) -> list[Any]:
    """Evaluate a step of our own, which has no ATen operation, by its rule on exact operands."""
    operands = {ref: exactly(values[ref]) for ref in step.operands}
    found = evaluate_step(step, operands, arithmetic)
    return [
        None if value is None or meta is None else value.mid.to(meta.dtype)
        for value, meta in zip(found, step.metas, strict=True)
    ]


def walk(program: Program, inputs: Mapping[str, Any], apply: Apply) -> dict[str, Any]:
    """Return the outputs of a program whose steps `apply` evaluates; values are dropped after their last use."""
    values: dict[Ref, Any] = {Ref(number): inputs[name] for name, number in program.inputs.items()}
    values |= {Ref(number): tensor for number, tensor in program.constants.items()}
    wanted = {ref for ref in program.outputs.values() if ref is not None}
    last = {ref: step.number for step in program.steps for ref in step.operands}
    for step in program.steps:
        if step.op is None:
            continue
        for output, value in enumerate(apply(step, values)):
            ref = Ref(step.number, output)
            if ref in last or ref in wanted:
                values[ref] = value
        for ref in set(step.operands):
            if last[ref] == step.number and ref not in wanted:
                del values[ref]
    return {name: values[ref] for name, ref in program.outputs.items() if ref is not None}
