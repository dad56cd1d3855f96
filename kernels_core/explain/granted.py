"""What a reference grants to each result, read off its program: operations, roundings, sums, casts.

Nothing is evaluated: a program knows shapes, dtypes and where each step comes from.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping

import torch

from kernels_core.program import Program, Step
from kernels_core.rules import casts, creation, movement

_PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1, "addbmm": 1}
_CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d")
_ROWWISE = ("softmax", "log_softmax", "softmax_backward_data", "log_softmax_backward_data")


@dataclasses.dataclass(frozen=True)
class Granted:
    """What correct kernels may do on the way to one result.

    Attributes:
        operations: name to number of times, in order of first use; what only moves or makes values is left out.
        roundings: dtype to the number of operations whose result is rounded to it.
        longest_sum: terms of the longest sum or inner product, which may be taken in any order; 0 for none.
        casts: (dtype, "file:line") of each cast to a narrower format; the place is "" where it is not known.
    """

    operations: Mapping[str, int]
    roundings: Mapping[str, int]
    longest_sum: int
    casts: tuple[tuple[str, str], ...]


def granted(program: Program, result: str) -> Granted:
    """Return what the program grants to one of its results."""
    steps = [step for step in program.only([result]).steps if step.op is not None]
    narrowing = [step for step in steps if _is_cast(step) and _narrows(step)]
    computing = [step for step in steps if _computes(step)]
    operations = collections.Counter(short(step) for step in computing)
    rounding = collections.Counter(_dtype(step) for step in (*computing, *narrowing) if _rounds(step))
    sums = max((terms(step) for step in computing), default=0)
    return Granted(operations, rounding, sums, tuple((_dtype(step), step.source) for step in narrowing))


def short(step: Step) -> str:
    """Return "softmax" for "aten._softmax.default"."""
    return step.name.split(".")[1].strip("_")


def terms(step: Step) -> int:
    """Return how many terms one element of the result is a sum of; 0 where the operation adds up nothing."""
    name, operands = short(step), step.operand_metas
    if name in _PRODUCTS and len(operands) > _PRODUCTS[name]:
        return operands[_PRODUCTS[name]].shape[-1]
    if name in _CONVOLUTIONS and len(operands) > 1:
        return math.prod(operands[1].shape[1:])
    if name in _ROWWISE:
        return step.shape[-1] if step.shape else 1
    if not operands or not step.meta.numel or operands[0].numel <= step.meta.numel:
        return 0
    return operands[0].numel // step.meta.numel


def moves(step: Step) -> bool:
    """Return True for a step that moves or makes values and computes nothing."""
    return step.name in movement.FAMILY or step.name in creation.FAMILY


def _computes(step: Step) -> bool:
    return step.name.startswith(("aten.", "prims.")) and not moves(step) and not _is_cast(step)


def _rounds(step: Step) -> bool:
    return any(meta is not None and meta.dtype.is_floating_point for meta in step.metas[:1])


def _is_cast(step: Step) -> bool:
    return step.name in casts.FAMILY


def _narrows(step: Step) -> bool:
    source, target = step.operand_metas[0].dtype, step.meta.dtype
    if not (source.is_floating_point and target.is_floating_point):
        return False
    return torch.finfo(target).eps > torch.finfo(source).eps


def _dtype(step: Step) -> str:
    return str(step.meta.dtype).removeprefix("torch.")
