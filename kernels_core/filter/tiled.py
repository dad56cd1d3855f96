"""A run of steps, evaluated tile by tile: what a step leaves lives in the cache, only what is read later is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Arithmetic, Local
from kernels_core.filter.assembly import Assembled, Total
from kernels_core.filter.evaluation import Values, apply_rule
from kernels_core.filter.flushing import flushed
from kernels_core.filter.threads import share
from kernels_core.filter.tiles import FINE_ELEMENTS, Run, narrow_index
from kernels_core.program import Ref
from kernels_core.rules import registry
from kernels_core.rules.cones import elementwise_tiles


def evaluate_tiled(run: Run, used: list[Ref], values: Values, arithmetic: Arithmetic) -> None:
    """Add the results of the run that are `used` later to the values."""
    steps = {step.number: step for step in run.steps}
    whole = {ref: Assembled(steps[ref.step].metas[ref.output].shape) for ref in used if ref.step in steps}  # type: ignore[union-attr]
    totals = {step.number: Total() for step in run.closing}

    read_last = _read_last(run, whole)

    def work(pieces: Iterator[tuple[int, tuple[slice, ...]]]) -> Arithmetic:
        own = dataclasses.replace(arithmetic, ties=0, rad_lost=False, failure=0.0, scratch={})
        locals_: dict[tuple[int, ...], list[Local]] = {}
        for number, piece in pieces:
            box = tuple(s.stop - s.start for s in piece)
            if box not in locals_:
                locals_[box] = [Local(own, step, box) for step in run.steps] + [
                    Local(own, step) for step in run.closing
                ]
            found = _evaluate_piece(run, number, piece, values, locals_[box], totals, read_last)
            for ref, assembled in whole.items():
                assembled.put(piece, box, found[ref])
        return own

    for own in share(work, list(enumerate(run.pieces(FINE_ELEMENTS if arithmetic.doubles else None))), values.device()):
        arithmetic.ties += own.ties
        arithmetic.rad_lost |= own.rad_lost
        arithmetic.failure += own.failure
    for ref, assembled in whole.items():
        values[ref] = assembled.value()
    for step in run.closing:
        local = Local(arithmetic, step)
        found = registry()[step.name].finish(local, totals[step.number].value())  # type: ignore[misc]
        values[Ref(step.number)] = flushed(found, step.meta.dtype) if local.flushes else found


def _evaluate_piece(
    run: Run,
    number: int,
    piece: tuple[slice, ...],
    values: Values,
    locals_: list[Local],
    totals: Mapping[int, Total],
    read_last: Mapping[int, list[Ref]],
) -> dict[Ref, Enclosure]:
    """Return the results of the run's steps within one tile; parts of closing sums go to their totals."""
    found: dict[Ref, Enclosure] = {}
    given: dict[tuple[Any, ...], Enclosure] = {}
    inside = {step.number for step in run.steps}

    def operand(ref: Ref, index: tuple[slice, ...]) -> Enclosure:
        key = (ref, *((part.start, part.stop) for part in index))
        if key not in given:  # converted to float64 once, however many steps read it
            given[key] = values.tile(ref, index)
        return given[key]

    for step, local in zip((*run.steps, *run.closing), locals_, strict=True):
        operands = [
            found[ref] if ref.step in inside else operand(ref, narrow_index(meta, step, piece))
            for ref, meta in zip(step.operands, step.operand_metas, strict=True)
        ]
        elementwise = registry()[step.name].tiles is elementwise_tiles
        if elementwise:
            operands = [_compact(operand) for operand in operands]
        args, kwargs = step.filled(operands)
        if step.number in totals:
            totals[step.number].add(number, registry()[step.name].partial(local, *args, **kwargs))  # type: ignore[misc]
        else:
            for output, value in enumerate(apply_rule(step, args, kwargs, operands, local)):
                if value is not None:
                    found[Ref(step.number, output)] = _expanded(value, local.shape) if elementwise else value
        for ref in read_last.get(step.number, ()):
            found.pop(ref, None)
    return found


def _read_last(run: Run, kept: Collection[Ref]) -> dict[int, list[Ref]]:
    """Return, for each step of the run, the results within it that no later one reads: their memory is used again."""
    last = {ref: step.number for step in (*run.steps, *run.closing) for ref in step.operands if ref not in kept}
    found: dict[int, list[Ref]] = {}
    for ref, number in last.items():
        found.setdefault(number, []).append(ref)
    return found


def _compact(value: Enclosure) -> Enclosure:
    """Return an expanded tensor with size 1 where it repeats itself: elementwise rules work on what is different."""
    if value.mid.is_contiguous():
        return value
    parts = [part for part in (value.mid, value.bound, value.unsure, value.low, value.rad) if part is not None]
    repeats = [
        n > 1 and all(part.dim() == len(value.shape) and part.stride(d) == 0 for part in parts)
        for d, n in enumerate(value.shape)
    ]
    if not any(repeats):
        return value
    index = tuple(slice(0, 1) if again else slice(None) for again in repeats)
    return value.each_part(lambda part: part[index])


def _expanded(value: Enclosure, shape: tuple[int, ...]) -> Enclosure:
    if tuple(value.shape) == shape:
        return value
    return value.each_part(lambda part: part.expand(shape))
