"""A line that runs many times: the same slip in every run, which no change of a single operation mends.

The operations of a line are cut into runs by their period; within a run they form expressions, a root each. Every run
is evaluated anew with one and the same change: a small one of one operation (edits.py), or the operands of the
expression in another order.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from kernels_core.blame.edits import edits
from kernels_core.blame.replay import CannotReplayError, evaluate
from kernels_core.blame.subject import Subject, line
from kernels_core.program import Ref, Step

Tensor = torch.Tensor
Change = Callable[["Expression", Mapping[Ref, Tensor]], Tensor]

_ARITHMETIC = frozenset(
    ("add", "sub", "mul", "div", "neg", "exp", "log", "sum", "mean", "pow", "where", "mm", "mv", "dot")
)
_OPERANDS = 4  # of an expression whose orders are tried


@dataclasses.dataclass(frozen=True)
class Expression:
    """One run of one expression of a line: its steps, the last of which is the root, and what they read."""

    steps: tuple[Step, ...]
    operands: tuple[Ref, ...]

    @property
    def root(self) -> Ref:
        """The result of the expression."""
        return Ref(self.steps[-1].number)


def in_every_run(subject: Subject, name: str, suspects: Sequence[Step]) -> list[tuple[Step, str]]:
    """Return the line whose change in every run makes a tensor right, with the change; empty where there is none."""
    lines: dict[str, list[Step]] = {line(step): [] for step in suspects if line(step)}
    for step in subject.ancestors(subject.rows[name]):
        if line(step) in lines and step.name.split(".")[1] in _ARITHMETIC and Ref(step.number) in subject.exact:
            lines[line(step)].append(step)
    for members in lines.values():
        for runs in expressions(members):
            for words, change in _changes(runs[0], subject):
                if subject.late():
                    return []
                if _mends(subject, name, runs, change):
                    return [(runs[0].steps[-1], f"{words} in all of its {len(runs)} runs every element is covered")]
    return []


def expressions(members: Sequence[Step]) -> Iterator[list[Expression]]:
    """Yield the expressions of a line that runs more than once, each as the list of its runs."""
    period = _period([step.name for step in members])
    starts = range(0, len(members), period) if period else ()
    runs = [_expressions(members[start : start + period]) for start in starts]
    if len({len(run) for run in runs}) == 1:
        alike = (list(expressions) for expressions in zip(*runs, strict=True))
        yield from (found for found in alike if len({len(expression.operands) for expression in found}) == 1)


def _period(names: Sequence[str]) -> int:
    """Return the least number of names that the sequence repeats at least twice, 0 where there is none."""
    for count in range(1, len(names) // 2 + 1):
        if len(names) % count == 0 and names == list(names[:count]) * (len(names) // count):
            return count
    return 0


def _expressions(run: Sequence[Step]) -> list[Expression]:
    """Return the expressions of one run of a line: a result that the run itself does not read is a root."""
    numbers = {step.number for step in run}
    inner = {ref.step for step in run for ref in step.operands if ref.step in numbers}
    found = []
    for root in (step for step in run if step.number not in inner):
        mine = {root.number}
        for step in reversed(run):
            if step.number in mine:
                mine.update(ref.step for ref in step.operands if ref.step in numbers)
        steps = tuple(step for step in run if step.number in mine)
        leaves = dict.fromkeys(ref for step in steps for ref in step.operands if ref.step not in mine)
        found.append(Expression(steps, tuple(leaves)))
    return found


def _changes(first: Expression, subject: Subject) -> Iterator[tuple[str, Change]]:
    for place, step in enumerate(first.steps):
        for words, _ in edits(step, subject.exact, None):
            yield words, _edited(place, words)
    count = len(first.operands)
    for order in itertools.permutations(range(count)) if 1 < count <= _OPERANDS else ():
        if order != tuple(range(count)):
            yield "with its operands in another order", _reordered(order)


def _edited(place: int, words: str) -> Change:
    def change(expression: Expression, values: Mapping[Ref, Tensor]) -> Tensor:
        found = {ref: values[ref] for ref in expression.operands}
        for number, step in enumerate(expression.steps):
            ref = Ref(step.number)
            found[ref] = evaluate(step, found)[0]
            if number == place:
                changed = dict(edits(step, found, None))
                if words not in changed:
                    raise CannotReplayError(words)
                found[ref] = changed[words]
        return found[expression.root]

    return change


def _reordered(order: Sequence[int]) -> Change:
    def change(expression: Expression, values: Mapping[Ref, Tensor]) -> Tensor:
        found = {ref: values[expression.operands[k]] for ref, k in zip(expression.operands, order, strict=True)}
        for step in expression.steps:
            found[Ref(step.number)] = evaluate(step, found)[0]
        return found[expression.root]

    return change


def _mends(subject: Subject, name: str, runs: Sequence[Expression], change: Change) -> bool:
    replacement = {run.root: _of(change, run) for run in runs}
    try:
        return subject.mended(name, replacement, rounded=False)
    except (CannotReplayError, RuntimeError):  # operands of other shapes
        return False


def _of(change: Change, run: Expression) -> Callable[[Mapping[Ref, Tensor]], Tensor]:
    return lambda values: change(run, values)
