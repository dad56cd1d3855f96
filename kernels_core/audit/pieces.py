"""Runs of steps by PyTorch's own operations, piece by piece: what only the run itself reads never leaves the cache.

The steps of a run act independently along its leading dimensions (filter/tiles.py), so the pieces hold the values
that PyTorch's operations on whole tensors have; sums over these dimensions are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from kernels_core.audit.parts import Part, flat_range
from kernels_core.audit.sample import spread
from kernels_core.filter.threads import each
from kernels_core.filter.tiles import Run, narrow_index, schedule
from kernels_core.program import Program, Ref, Step

Tensor = torch.Tensor
Index = tuple[slice, ...]
Read = Callable[[str, Tensor], Tensor]

_CPU = torch.device("cpu")
SOME, SMALL = 32, 1 << 14  # pieces that stand for all of a run, and their number of elements
_RESHAPES = frozenset(
    f"aten.{name}.default" for name in ("view", "_unsafe_view", "reshape", "view_copy", "_reshape_copy")
)
_EXPANSIONS = frozenset(("aten.expand.default", "aten.expand_copy.default"))


def runs(program: Program) -> list[Run]:
    """Return all steps: those that can be evaluated in pieces as runs of several, the others one by one."""
    found: list[Run] = []
    for run in schedule(program):
        if len(run.steps) > 1 and all(map(_sliceable, run.steps)):
            found.append(Run(run.steps, run.lead))
        else:
            found += [Run([step], ()) for step in run.steps]
        found += [Run([step], ()) for step in run.closing]
    return found


def _sliceable(step: Step) -> bool:
    """Return True for steps that PyTorch has an operation for, and whose only shape is that of an operand."""
    return bool(step.operands) and not step.name.startswith("exactref.")


def whole(run: Run, values: Mapping[Ref, Tensor], read: Read, wanted: Collection[Ref]) -> dict[Ref, Tensor]:
    """Return some results of a run.

    Args:
        run: of several steps.
        values: what the run reads from outside.
        read: what an operation reads in the place of an operand.
        wanted: results to return; steps that none of them needs are left out.
    """
    if not wanted:
        return {}
    found: dict[Ref, Tensor] = {}
    steps = _needed(run, wanted)

    def put(piece: Index) -> None:
        for ref, value in _piece(steps, piece, values, read, wanted).items():
            if ref not in found:
                found[ref] = value.new_empty((*run.lead, *value.shape[len(run.lead) :]))
            found[ref][piece] = value

    first, *others = run.pieces()
    put(first)
    each(put, others, next(iter(found.values())).device)
    return found


def partly(run: Run, values: Mapping[Ref, Tensor], read: Read, wanted: Collection[Ref]) -> dict[Ref, Tensor | Part]:
    """Return the same for 32 pieces spread over the run, or for all of it where that is not much more."""
    pieces = list(run.pieces(SMALL))
    if len(pieces) <= 2 * SOME or not wanted:
        return dict(whole(run, values, read, wanted))
    steps, taken = _needed(run, wanted), [pieces[i] for i in spread(len(pieces), _CPU, SOME).tolist()]
    device = next((values[ref].device for step in steps for ref in step.operands if ref in values), _CPU)
    found = each(lambda piece: _piece(steps, piece, values, read, wanted), taken, device)
    shapes = {ref: (*run.lead, *found[0][ref].shape[len(run.lead) :]) for ref in wanted}
    return {
        ref: Part([flat_range(piece, shape) for piece in taken], [values_here[ref] for values_here in found])
        for ref, shape in shapes.items()
    }


def _needed(run: Run, wanted: Collection[Ref]) -> list[Step]:
    """Return the steps of the run that these results are made of."""
    numbers, steps = {ref.step for ref in wanted}, list[Step]()
    for step in reversed(run.steps):
        if step.number in numbers:
            numbers.update(ref.step for ref in step.operands)
            steps.append(step)
    return steps[::-1]


def _piece(
    steps: Sequence[Step], piece: Index, values: Mapping[Ref, Tensor], read: Read, wanted: Collection[Ref]
) -> dict[Ref, Tensor]:
    """Return the results that are wanted within one piece."""
    found: dict[Ref, Tensor] = {}
    box = tuple(part.stop - part.start for part in piece)
    for step in steps:
        operands = [
            found[ref] if ref in found else values[ref][narrow_index(meta, step, piece)]
            for ref, meta in zip(step.operands, step.operand_metas, strict=True)
        ]
        found |= {Ref(step.number, output): value for output, value in enumerate(perform(step, operands, read, box))}
    return {ref: found[ref] for ref in wanted}


def perform(step: Step, operands: list[Tensor], read: Read, box: tuple[int, ...] = ()) -> list[Any]:
    """Return the results of one step by its ATen operation; `box` are the leading dimensions of a piece."""
    if step.name in _RESHAPES | _EXPANSIONS:
        shape = (*box, *step.shape[len(box) :])
        return [operands[0].expand(shape) if step.name in _EXPANSIONS else operands[0].reshape(shape)]
    args, kwargs = step.filled(read(step.name, operand) for operand in operands)
    result = step.op(*args, **kwargs)  # type: ignore[misc]
    return list(result) if isinstance(result, (tuple, list)) else [result]
