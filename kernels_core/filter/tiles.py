"""Which steps of a program are evaluated together, piece by piece.

A run is a set of steps that act independently along the same leading dimensions: elementwise operations, reductions
and softmax over trailing dimensions. It is evaluated in tiles of about 2 MB, so that only what is used outside the run
is ever materialised. Nearly all the cost of an untiled evaluation is the memory traffic of fresh large temporaries.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator

from kernels_core.program import Meta, Program, Ref, Step
from kernels_core.rules import registry
from kernels_core.rules.cones import normal_dims

LOOK_AHEAD = 256  # steps that a run is searched for: without a limit long programs take quadratic time
TILE_ELEMENTS = 1 << 18  # 2 MB: few enough that what each operation costs by itself counts little
FINE_ELEMENTS = 1 << 17  # 1 MB, for double-double: dozens of operations in a row on the same few tensors


@dataclasses.dataclass
class Run:
    """Steps evaluated together.

    Attributes:
        steps: in order.
        lead: the leading dimensions along which all of them act independently; () for a single untiled step.
        closing: sums over these leading dimensions, added up tile by tile and complete at the end of the run.
    """

    steps: list[Step]
    lead: tuple[int, ...]
    closing: list[Step] = dataclasses.field(default_factory=list)

    def in_order(self) -> list[Step]:
        """Return all steps, the closing sums each as soon as what it adds up is there."""
        place = {step.number: place for place, step in enumerate(self.steps)}

        def key(step: Step) -> tuple[int, bool]:
            there = [place[ref.step] for ref in step.operands if ref.step in place]
            return (place[step.number], False) if step.number in place else (max(there, default=0), True)

        return sorted((*self.steps, *self.closing), key=key)

    def outputs_used(self, program: Program) -> list[Ref]:
        """Return the results that later steps or the caller read."""
        mine = {step.number for step in (*self.steps, *self.closing)}
        wanted = {ref for ref in program.outputs.values() if ref is not None and ref.step in mine}
        for step in program.steps:
            if step.number not in mine:
                wanted.update(ref for ref in step.operands if ref.step in mine)
        return sorted(wanted)

    def pieces(self, elements: int | None = None) -> Iterator[tuple[slice, ...]]:
        """Yield the tiles as slices of the leading dimensions, of about `elements` elements each, a tile's if None."""
        inner = max(math.prod(m.shape[len(self.lead) :]) for s in self.steps for m in s.metas if m is not None)
        yield from _pieces(self.lead, max(1, (elements or TILE_ELEMENTS) // max(1, inner)))


def _pieces(lead: tuple[int, ...], rows: int) -> Iterator[tuple[slice, ...]]:
    """Split the index space `lead` into boxes of about `rows` points: inner dimensions, a range, single outers."""
    if 0 in lead:  # one tile, so that there is a value
        yield tuple(slice(0, n) for n in lead)
        return
    inner, split = 1, len(lead)
    while split and inner * lead[split - 1] <= rows:
        split -= 1
        inner *= lead[split]
    if split == 0:
        yield tuple(slice(0, n) for n in lead)
        return
    width = max(1, rows // inner)
    for outer in itertools.product(*(range(n) for n in lead[: split - 1])):
        for start in range(0, lead[split - 1], width):
            box = [slice(i, i + 1) for i in outer] + [slice(start, min(start + width, lead[split - 1]))]
            yield (*box, *(slice(0, n) for n in lead[split:]))


def schedule(program: Program, *, closing: bool = True, whole: Callable[[Step], bool] | None = None) -> list[Run]:
    """Return the steps of the program (without inputs and constants) as runs, in an order that respects dependence.

    Without `closing` every sum over leading dimensions is a step of its own, on the whole of its operand; so is every
    step that is `whole`.
    """
    alone = {step.number for step in program.steps if step.op is not None and whole is not None and whole(step)}
    waiting = [step for step in program.steps if step.op is not None]
    runs: list[Run] = []
    while waiting:
        run, waiting = _grow(waiting, closing, alone)
        runs.append(run)
    return runs


def _grow(waiting: list[Step], closing: bool, alone: Collection[int]) -> tuple[Run, list[Step]]:
    """Start a run with the first step and take in every later step that fits and depends on no step left out."""
    first = waiting[0]
    run = Run([first], () if first.number in alone else _lead(first, len(first.shape)))
    left: list[Step] = []
    blocked: set[int] = set()
    members = {first.number: first}
    for step in waiting[1:LOOK_AHEAD]:
        lead = None
        if run.lead and step.number not in alone and not any(ref.step in blocked for ref in step.operands):
            lead = _common_lead(run, step, members)
        if lead is None:
            blocked.add(step.number)
            if closing and run.lead and not any(ref.step in blocked for ref in step.operands) and _closes(run, step):
                run.closing.append(step)
            else:
                left.append(step)
            continue
        run.lead = lead
        run.steps.append(step)
        members[step.number] = step
    return run, left + waiting[LOOK_AHEAD:]


def _lead(step: Step, limit: int) -> tuple[int, ...]:
    return step.shape[: min(registry()[step.name].tiles(step), limit)] if step.metas[0] is not None else ()


def _common_lead(run: Run, step: Step, members: dict[int, Step]) -> tuple[int, ...] | None:
    """Return the leading dimensions of the run with this step in it, or None where it does not fit."""
    lead = _lead(step, len(run.lead))
    if not lead or lead != run.lead[: len(lead)]:
        return None
    aligned_right = registry()[step.name].aligned == "right"
    for ref, meta in zip(step.operands, step.operand_metas, strict=True):
        if ref.step in members and aligned_right and len(meta.shape) != len(step.shape):
            return None
        if ref.step in members and meta.shape[: len(lead)] != lead:
            return None
    if len(lead) < len(run.lead) and not _affordable(run.steps, step, lead):
        return None
    return lead


def _closes(run: Run, step: Step) -> bool:
    """Return True where the step is a sum over leading dimensions of the run; the run keeps those that it reduces."""
    rule = registry()[step.name]
    if rule.partial is None or step.metas[0] is None or not step.metas[0].dtype.is_floating_point:
        return False
    operand = step.operand_metas[0]
    dims = normal_dims(step.argument(1, "dim"), len(operand.shape))
    count = next((k for k in range(len(run.lead)) if k not in dims), len(run.lead))
    lead = run.lead[:count]
    if not count or operand.shape[:count] != lead or (count < len(run.lead) and not _affordable(run.steps, step, lead)):
        return False
    run.lead = lead
    return True


def _affordable(steps: list[Step], step: Step, lead: tuple[int, ...]) -> bool:
    """Return True where one index of the shortened lead still fits into a few tiles."""
    metas = [m for s in (*steps, step) for m in (*s.metas, *s.operand_metas) if m is not None]
    return max(math.prod(m.shape[len(lead) :]) for m in metas) <= 4 * TILE_ELEMENTS


def narrow_index(meta: Meta, step: Step, piece: tuple[slice, ...]) -> tuple[slice, ...]:
    """Return the index that takes an operand's tile: sliced along the run's dimensions, whole where it broadcasts."""
    shift = len(step.shape) - len(meta.shape) if registry()[step.name].aligned == "right" else 0
    index = [slice(None)] * len(meta.shape)
    for dim, box in enumerate(piece):
        own = dim - shift
        if 0 <= own < len(meta.shape) and meta.shape[own] != 1:
            index[own] = box
    return tuple(index)
