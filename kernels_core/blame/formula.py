"""The formula is wrong: without any rounding the kernel's operations give other values than the true ones.

A line is blamed by a counterfactual: the first operation for which a small change, or a value of the true derivative in
the place of its result, brings every element of the tensor inside, and none of the other tensors out; or the same small
change in every run of a line (loops.py); or the upstream gradient is lost there (upstream.py). Where nothing of this
explains it, what is left is the part of the program between values that are known to be right and the wrong tensor; it
is named where it is a single line, and listed where it is a few.
"""

from __future__ import annotations

import torch

from kernels_core.blame.edits import constant_ratio, edits
from kernels_core.blame.loops import in_every_run
from kernels_core.blame.replay import CannotReplayError
from kernels_core.blame.subject import Subject, line
from kernels_core.blame.upstream import lost_upstream
from kernels_core.program import Ref, Step

Tensor = torch.Tensor
WRONG = "the formula is wrong here"
_LINES = 3  # more than these say nothing


def wrong_formula(subject: Subject, name: str) -> list[tuple[Step, str]]:
    """Return the steps to blame for a tensor, with the reason; empty where nothing can be said."""
    suspects = suspected(subject, subject.rows[name])
    if subject.late():
        return []
    if found := lost_upstream(subject, name) or in_every_run(subject, name, suspects):
        return found
    for place, step in enumerate(suspects):
        if subject.late():
            break
        if reason := _edit(subject, name, step) or _right_value(subject, name, step):
            return [(step, reason), *_elsewhere(subject, name, line(step), suspects[place + 1 :])]
    return _left(suspects)


def _elsewhere(subject: Subject, name: str, blamed: str, later: list[Step]) -> list[tuple[Step, str]]:
    """Return another line whose change mends the tensor as well, if there is one: these inputs cannot tell which."""
    for step in later:
        if line(step) != blamed and not subject.late() and (reason := _edit(subject, name, step)):
            return [(step, f"or {reason}")]
    return []


def suspected(subject: Subject, ref: Ref) -> list[Step]:
    """Return the steps between values that are known to be right and a wrong result, in the order of execution.

    Not all of them where time runs out.
    """
    innocent = _behind_right_outputs(subject)
    found: dict[int, Step] = {}
    waiting = [ref]
    while waiting and not subject.late():
        step = subject.steps[waiting.pop().step]
        if step.number in found or step.op is None or step.number in innocent or _is_constant(step):
            continue
        if step.number != ref.step and all(subject.truth.has(v) for v in _results(subject, step)):
            continue
        found[step.number] = step
        waiting += step.operands
    return [found[number] for number in sorted(found)]


def _is_constant(step: Step) -> bool:
    """Return True for steps that read no values: zeros, ones, numbers in order."""
    kind = step.name.split(".")[1]
    return not step.operands or kind.startswith(("new_", "empty")) or kind.endswith("_like")


def _results(subject: Subject, step: Step) -> list[Tensor]:
    return [subject.exact[ref] for k in range(len(step.metas)) if (ref := Ref(step.number, k)) in subject.exact]


def _behind_right_outputs(subject: Subject) -> set[int]:
    """Return the steps of the forward, where it is right: what it returns is made of them."""
    wrong = subject.wrong_exactly
    right = [ref for name, ref in subject.rows.items() if not name.startswith("grad_") and name not in wrong]
    return {step.number for ref in right for step in subject.ancestors(ref)}


def _edit(subject: Subject, name: str, step: Step) -> str:
    """Return the small change of this step that makes the tensor right, "" where none does."""
    ref = Ref(step.number)
    if ref not in subject.exact or not line(step):
        return ""
    ratio = constant_ratio(subject.setting.results[name].enclosure.mid, subject.exact[subject.rows[name]])
    for words, value in edits(step, subject.exact, ratio):
        if _mends(subject, name, {ref: value}):
            return f"{words} every element is covered"
    return ""


def _right_value(subject: Subject, name: str, step: Step) -> str:
    """Say so where a value of the true function or derivative, but the tensor itself, makes the tensor right here."""
    ref, mid = Ref(step.number), subject.setting.results[name].enclosure.mid
    for value in subject.truth.like(subject.exact[ref]) if ref in subject.exact and line(step) else ():
        alike = value.shape == mid.shape and value.dtype == mid.dtype
        trivial = alike and not bool(subject.outside(name, value).any())
        if not trivial and _mends(subject, name, {ref: value}):
            kind = "derivative" if name.startswith("grad_") else "function"
            return f"with the value that the true {kind} has there every element is covered"
    return ""


def _mends(subject: Subject, name: str, replacement: dict[Ref, Tensor]) -> bool:
    try:
        return subject.mended(name, replacement, rounded=False)
    except CannotReplayError:
        return False


def _left(suspects: list[Step]) -> list[tuple[Step, str]]:
    lines: dict[str, Step] = {}
    for step in suspects:
        if line(step):
            lines.setdefault(line(step), step)
    if len(lines) == 1:
        return [(step, "all that enters it is right, its result is not") for step in lines.values()]
    if len(lines) <= _LINES:
        return [(step, f"or in another of these {len(lines)} lines: all that enters them is right")
                for step in lines.values()]  # fmt: skip
    return []
