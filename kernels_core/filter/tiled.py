"""A run of steps, evaluated tile by tile: what a step leaves lives in the cache, only what is read later is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Arithmetic, Local
from kernels_core.filter.assembly import Assembled, Total
from kernels_core.filter.evaluation import Values, apply_rule
from kernels_core.filter.flushing import flushed
from kernels_core.filter.threads import share
from kernels_core.filter.tiles import FINE_ELEMENTS, Run, narrow_index
from kernels_core.program import Ref, Step
from kernels_core.rules import registry
from kernels_core.rules.cones import elementwise_tiles


def evaluate_tiled(run: Run, used: list[Ref], values: Values, arithmetic: Arithmetic) -> None:
    """Add the results of the run that are `used` later to the values."""
    steps = {step.number: step for step in run.steps}
    whole = {ref: Assembled(steps[ref.step].metas[ref.output].shape) for ref in used if ref.step in steps}  # type: ignore[union-attr]
    totals = {step.number: Total() for step in run.closing}
    order = run.in_order()
    read_last = _read_last(order)

    def work(pieces: Iterator[tuple[int, tuple[slice, ...]]]) -> Arithmetic:
        own = dataclasses.replace(
            arithmetic, ties=0, orders_of_nan=0, rad_lost=False, special=False, failure=0.0, kept={}, scratch={}
        )
        locals_: dict[tuple[int, ...], list[Local]] = {}
        for number, piece in pieces:
            box = tuple(s.stop - s.start for s in piece)
            if box not in locals_:
                locals_[box] = [Local(own, step, () if step.number in totals else box) for step in order]
            _evaluate_piece(order, number, piece, values, locals_[box], whole, totals, read_last)
        return own

    for own in share(work, list(enumerate(run.pieces(FINE_ELEMENTS if arithmetic.doubles else None))), values.device()):
        arithmetic.ties += own.ties
        arithmetic.orders_of_nan += own.orders_of_nan
        arithmetic.rad_lost |= own.rad_lost
        arithmetic.special |= own.special
        arithmetic.failure += own.failure
    for ref, assembled in whole.items():
        values[ref] = assembled.value()
    for step in run.closing:
        local = Local(arithmetic, step)
        found = registry()[step.name].finish(local, totals[step.number].value())  # type: ignore[misc]
        values[Ref(step.number)] = flushed(found, step.meta.dtype) if local.flushes else found


def _evaluate_piece(
    order: Sequence[Step],
    number: int,
    piece: tuple[slice, ...],
    values: Values,
    locals_: Sequence[Local],
    whole: Mapping[Ref, Assembled],
    totals: Mapping[int, Total],
    read_last: Mapping[int, Sequence[Ref]],
) -> None:
    """Evaluate the steps within one tile; what is used later goes to `whole`, parts of closing sums to their totals.

    Both go there while they are in the cache, and nothing is kept that no later step reads.
    """
    found: dict[Ref, Enclosure] = {}
    given: dict[tuple[Any, ...], Enclosure] = {}
    inside = {step.number for step in order}

    def operand(ref: Ref, index: tuple[slice, ...]) -> Enclosure:
        key = (ref, *((part.start, part.stop) for part in index))
        if key not in given:  # converted to float64 once, however many steps read it
            given[key] = values.tile(ref, index)
        return given[key]

    for step, local in zip(order, locals_, strict=True):
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
                    ref = Ref(step.number, output)
                    found[ref] = _expanded(value, local.shape) if elementwise else value
                    if ref in whole:
                        whole[ref].put(piece, local.box, found[ref])
        for ref in read_last[step.number]:
            found.pop(ref, None)


def _read_last(order: Sequence[Step]) -> dict[int, list[Ref]]:
    """Return, for each step, the results that no later one reads: their memory is used again."""
    last = {Ref(step.number, output): step.number for step in order for output in range(len(step.metas))}
    last |= {ref: step.number for step in order for ref in step.operands if ref in last}
    found: dict[int, list[Ref]] = {step.number: [] for step in order}
    for ref, number in last.items():
        found[number].append(ref)
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
