"""What stays beyond every narrower format: numbers that float64 cannot hold, in the sums and products they enter.

A step on exact operands whose float64 value is infinite has an exact result of at least 2^1024 (enclosure.py: mid is
infinite, and so is bound). No format narrower than float64 holds 2^129, so that every kernel returns an infinity there,
and it is still one after a few more steps:

    k products by factors of at least 2^-m, k m <= 890       at least 2^134
    sums with others of at most 2^64 each                    the same, less k 2^64
    a change of sign or format                               the same

k is the number of products in the program, whatever path they stand on, and m at most 64, so that kernels which form
the product of two such factors first do not underflow. Where a factor may be smaller nothing is known.
"""

from __future__ import annotations

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import DISCRETE
from kernels_core.program import Program, Step
from kernels_core.rules import registry
from kernels_core.rules.record import Rule

Tensor = torch.Tensor
_ROOM, _LARGEST_EXPONENT, _LARGEST_ADDEND = 890, 64, 2.0**64
_MOVES = frozenset({"aten.neg.default", "aten._to_copy.default", "prims.convert_element_type.default"})


def smallest_factor(program: Program) -> float:
    """Return 2^-m for a program: how small a factor may be that leaves overflow what it is."""
    count = sum(step.op is not None and registry()[step.name].scales_inf for step in program.steps)
    return 2.0 ** -min(_LARGEST_EXPONENT, _ROOM // max(1, count))


def carried(step: Step, rule: Rule, operands: list[Enclosure], factor: float) -> Tensor | None:
    """Return where a result is beyond every narrower format since one operand is; None for nowhere.

    Args:
        step: a sum, a product, or what only changes the sign or the format.
        rule: of the step.
        operands: its tensors.
        factor: `smallest_factor` of the program.
    """
    moves = step.name in _MOVES
    if not (moves or rule.keeps_inf or rule.scales_inf) or not all(op.floating for op in operands):
        return None
    beyond = [op.mid.isinf() & op.bound_or_zero().isinf() for op in operands]
    if not any(bool(there.any()) for there in beyond):
        return None
    if moves:
        return beyond[0]
    numbers = [abs(float(arg)) for arg in step.args if isinstance(arg, (int, float))]
    if step.kwargs or len(operands) + len(numbers) != 2:
        return None
    if numbers:
        fits = numbers[0] >= factor if rule.scales_inf else numbers[0] <= _LARGEST_ADDEND
        return beyond[0] if fits else None
    fits_here = [_is_factor(op, factor) if rule.scales_inf else _is_addend(op) for op in operands]
    return (beyond[0] & fits_here[1]) | (beyond[1] & fits_here[0])


def _is_factor(value: Enclosure, smallest: float) -> Tensor:
    return value.mid.isfinite() & (value.mid.abs() - value.bound_or_zero() * DISCRETE >= smallest)


def _is_addend(value: Enclosure) -> Tensor:
    return value.mid.abs() + value.bound_or_zero() <= _LARGEST_ADDEND
