"""The determinant with its derivative det(A) A^-T.

PyTorch's own derivative formula goes through singular values where it may be differentiated again; its kernels solve
with the factors that they have. A reference therefore computes sign(det) exp(log|det|), whose derivative is one linear
solve, and in the program this product is the determinant again, as accurate as that of the kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels_core.program import Program, Ref, Step, without_dead_steps

Tensor = torch.Tensor


def determinant(input: Tensor) -> Tensor:
    """Return the determinants of the matrices, in the form that is differentiated."""
    sign, logarithm = torch.linalg.slogdet(input)
    value: Tensor = sign * logarithm.exp()
    return value


DETERMINANTS: Mapping[Any, Callable[..., Any]] = {
    torch.linalg.det: determinant,
    torch.det: determinant,
    torch.Tensor.det: determinant,
}


def with_determinants(program: Program) -> Program:
    """Return the program with every sign(det A) exp(log|det A|) computed as det A."""
    steps = {step.number: step for step in program.steps}
    changed = {}
    for step in program.steps:
        matrix = _matrix(step, steps) if step.name == "aten.mul.Tensor" else None
        if matrix is not None:
            changed[step.number] = dataclasses.replace(
                step, op=torch.ops.aten._linalg_det.default, name="aten._linalg_det.default", args=(matrix,), kwargs={},
                operand_metas=steps[step.args[0].step].operand_metas,
            )  # fmt: skip
    if not changed:
        return program
    found = tuple(changed.get(step.number, step) for step in program.steps)
    return without_dead_steps(dataclasses.replace(program, steps=found))


def _matrix(step: Step, steps: Mapping[int, Step]) -> Ref | None:
    """Return A where the step is the product of the sign and the exponential of the logarithm of det A."""
    if len(step.operands) != 2 or step.args[0] != step.operands[0]:
        return None
    sign, size = step.operands
    source, power = steps[sign.step], steps[size.step]
    if source.name != "aten._linalg_slogdet.default" or sign.output != 0 or power.name != "aten.exp.default":
        return None
    return source.operands[0] if power.operands[0] == Ref(source.number, 1) else None
