"""The tangent of a linear system, solved from the matrix in place of the factors that the forward left.

PyTorch's tangent of A X = B is the solution of A Y = dB - dA X by the factors that its own elimination returned. Which
factors these are is its own business (of A or of its transpose), so nothing is said of them (rules/solving.py); what
they solve is the system of A, whichever way, and any backward stable algorithm may. The tangent of a determinant, the
trace of A^-1 dA, reuses those of the determinant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from kernels_core.program import Meta, Program, Ref, Step, without_dead_steps

_SOLVE = torch.ops.aten._linalg_solve_ex.default
_BY_FACTORS = "aten.linalg_lu_solve.default"
_FACTORS_OF = {str(_SOLVE): 1, "aten._linalg_slogdet.default": 2}  # which result they are; the pivots are the next one


def with_systems(program: Program) -> Program:
    """Return the program with each derivative step that reuses the factors of another one solving for itself."""
    steps = {step.number: step for step in program.steps}
    changed = {}
    for step in program.steps:
        matrix = _matrix(step, steps) if step.name == _BY_FACTORS and step.backward else None
        if matrix is not None:
            changed[step.number] = _solving(step, matrix, steps)
    if not changed:
        return program
    found = tuple(changed.get(step.number, step) for step in program.steps)
    return without_dead_steps(dataclasses.replace(program, steps=found))


def _matrix(step: Step, steps: Mapping[int, Step]) -> Ref | None:
    """Return A where factors and pivots are those that the solution of a system, or the determinant, of A returned."""
    factors, pivots = step.operands[:2]
    source = steps[factors.step]
    place = _FACTORS_OF.get(source.name)
    if place is None or factors != Ref(source.number, place) or pivots != Ref(source.number, place + 1):
        return None
    return source.operands[0]


def _solving(step: Step, matrix: Ref, steps: Mapping[int, Step]) -> Step:
    source, (result,) = steps[step.operands[0].step], step.metas
    place, of_matrix = _FACTORS_OF[source.name], source.operand_metas[0]
    info = Meta(() if of_matrix is None else of_matrix.shape[:-2], torch.int32)
    metas = (result, *source.metas[place : place + 2], info)
    return dataclasses.replace(
        step, op=_SOLVE, name=str(_SOLVE), args=(matrix, step.operands[2]), metas=metas,
        kwargs={"left": step.kwargs.get("left", True)},
        operand_metas=(of_matrix, step.operand_metas[2]),
    )  # fmt: skip
