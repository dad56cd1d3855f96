"""The first NaN: the operation that makes one out of numbers, and without which the tensor has none."""

from __future__ import annotations

import torch

from kernels_core.blame.replay import CannotReplayError, changed
from kernels_core.blame.subject import Subject, line
from kernels_core.diagnosis.evidence import Evidence
from kernels_core.program import Ref, Step

Tensor = torch.Tensor
NAN = "the first NaN appears here"


def first_nan(subject: Subject, evidence: Evidence) -> list[tuple[Step, str]]:
    """Return the step to blame, with what it makes a NaN of; empty where no single step is the origin."""
    row, values = subject.rows[evidence.result.name], subject.rounded
    for step in subject.ancestors(row):
        ref = Ref(step.number)
        if ref not in values or not values[ref].is_floating_point() or not line(step):
            continue
        born = values[ref].isnan()
        if not bool(born.any()) or any(_has_nan(values.get(operand)) for operand in step.operands):
            continue
        clean = {ref: torch.where(born, 0.0, values[ref])}
        try:
            found = changed(subject.program, values, clean, [row], rounded=True)[row]
        except CannotReplayError:
            continue
        if not bool(found[evidence.failing].isnan().any()):
            return [(step, _what(subject, step, born))]
    return []


def _has_nan(value: Tensor | None) -> bool:
    return value is not None and value.is_floating_point() and bool(value.isnan().any())


_SIGNS = {"div": "/", "mul": "*", "sub": "-", "add": "+"}


def _what(subject: Subject, step: Step, born: Tensor) -> str:
    """Return "0 / 0, in float32", with the operands at the first NaN."""
    kind = step.name.split(".")[1]
    meta = step.metas[0]
    where = f", in {str(meta.dtype)[6:]}" if meta is not None else ""
    index = tuple(int(i) for i in torch.nonzero(born)[0])
    operands = [_at(subject.rounded[a], index, born) if isinstance(a, Ref) else f"{a:g}"
                for a in step.args if isinstance(a, (Ref, int, float))]  # fmt: skip
    if "" in operands:
        return f"{kind}{where}"
    if kind in _SIGNS and len(operands) == 2:
        return f"{operands[0]} {_SIGNS[kind]} {operands[1]}{where}"
    return f"{kind}({', '.join(operands)}){where}"


def _at(value: Tensor, index: tuple[int, ...], like: Tensor) -> str:
    try:
        return f"{float(value.expand(like.shape)[index]):g}"
    except RuntimeError:  # a reduction: its operand has another shape
        return ""
