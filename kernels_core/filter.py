"""The filter: one float64 evaluation of a program, with a bound beside every value.

Our own uncertainty. The float64 evaluation of `mid` obeys the same rules as a kernel, with u = 2^-53. Where every
format of the program is float32 or narrower, each step grants at least 2^26 times the rounding that our evaluation
commits (u ratio 2^29, less a factor 8 for the accuracy of float64 functions), and every rule's propagation F is
star-shaped, F(t b) <= t F(b) for t <= 1. Then by induction over the steps

    |mid - exact| <= 2^-26 bound.

Otherwise (a float64 step, or a rule that reported a point where F is not star-shaped) a second run of the same rules
with every format float64 bounds |mid - exact| itself: the `rad` run.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from kernels_core.arithmetic import DISCRETE, Arithmetic, Local
from kernels_core.enclosure import Enclosure, all_finite, exactly
from kernels_core.errors import InvariantError, UsageError
from kernels_core.fusion import fused
from kernels_core.profiles import Profile
from kernels_core.program import Program, Ref, Step, replace_refs
from kernels_core.rules import registry
from kernels_core.rules.cones import elementwise_tiles
from kernels_core.threads import share
from kernels_core.tiles import Run, narrow_index, schedule

RAD_FRACTION = 2.0**-26


class Values(dict[Ref, Enclosure]):
    """Enclosures by Ref. Tensors given from outside keep their own format until they are read, whole or by the tile."""

    def __getitem__(self, ref: Ref) -> Enclosure:
        """Return the whole enclosure, midpoint in float64."""
        value = super().__getitem__(ref)
        if value.floating and value.mid.dtype is not torch.float64:
            value = exactly(value.mid)
            self[ref] = value
        return value

    def device(self) -> torch.device:
        """Return the device of the tensors."""
        return next((value.mid.device for value in self.values()), torch.device("cpu"))

    def tile(self, ref: Ref, index: tuple[slice, ...]) -> Enclosure:
        """Return a part of the enclosure, midpoint in float64."""
        value = super().__getitem__(ref)
        if value.floating and value.mid.dtype is not torch.float64:
            return exactly(value.mid[index])
        bound, unsure = value.bound, value.unsure
        return Enclosure(value.mid[index], None if bound is None else bound.expand(value.shape)[index],
                         None if unsure is None else unsure.expand(value.shape)[index])  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Filtered:
    """The outcome of the filter.

    Attributes:
        enclosures: by output name.
        rads: bound on |mid - exact| by output name; a float is that fraction of the bound.
        integers: every integer or boolean tensor of the program that an index may need, for the exact tier.
        ties: number of exact ties met in comparisons (0 where the run counted none).
    """

    enclosures: Mapping[str, Enclosure]
    rads: Mapping[str, torch.Tensor | float]
    integers: Values
    ties: int


def run_filter(
    program: Program,
    inputs: Mapping[str, torch.Tensor | Enclosure],
    profile: Profile,
    *,
    kinks: bool = False,
    rad: bool = True,
) -> Filtered:
    """Evaluate the program and bound every output.

    Args:
        program: traced at the shapes and dtypes of `inputs`.
        inputs: one tensor (exact) or enclosure for each input of the program.
        profile: the arithmetic that kernels may use.
        kinks: let ties in comparisons be unsure, so that gradients take the hull of both sides.
        rad: False to leave |mid - exact| out.
    """
    program = fused(program)
    arithmetic = Arithmetic(profile, kinks=kinks)
    values = _evaluate(program, _start(program, inputs), arithmetic)
    found = {name: values[ref] for name, ref in program.outputs.items() if ref is not None}
    integers = Values({ref: value for ref, value in values.items() if not value.floating})
    rads: dict[str, torch.Tensor | float] = dict.fromkeys(found, RAD_FRACTION)
    if rad and (arithmetic.rad_lost or _has_float64_step(program)):
        own = Arithmetic(profile, float64=True, kinks=kinks)
        again = _evaluate(program, _start(program, _mids(inputs)), own)
        rads = {name: again[program.outputs[name]].bound_or_zero() for name in found}  # type: ignore[index]
    return Filtered(found, rads, integers, arithmetic.ties)


def _mids(inputs: Mapping[str, torch.Tensor | Enclosure]) -> dict[str, torch.Tensor | Enclosure]:
    return {n: Enclosure(v.mid, None, v.unsure) if isinstance(v, Enclosure) else v for n, v in inputs.items()}


def _has_float64_step(program: Program) -> bool:
    return any(m is not None and m.dtype is torch.float64 for s in program.steps if s.op is not None for m in s.metas)


def _start(program: Program, inputs: Mapping[str, torch.Tensor | Enclosure]) -> Values:
    values = Values()
    for name, number in program.inputs.items():
        if name not in inputs:
            raise InvariantError(f"no value for input {name}")
        value = inputs[name]
        values[Ref(number)] = value if isinstance(value, Enclosure) else Enclosure(value)
    for number, tensor in program.constants.items():
        values[Ref(number)] = Enclosure(tensor)
    return values


def _evaluate(program: Program, values: Values, arithmetic: Arithmetic) -> Values:
    runs = schedule(program)
    uses = [run.outputs_used(program) for run in runs]
    last = _last_use(program, runs)
    for number, (run, used) in enumerate(zip(runs, uses, strict=True)):
        if run.lead:
            _evaluate_tiled(run, used, values, arithmetic)
        else:
            for output, value in enumerate(evaluate_step(run.steps[0], values, arithmetic)):
                if value is not None:
                    values[Ref(run.steps[0].number, output)] = value
        for ref in last.get(number, ()):
            if dict.__getitem__(values, ref).floating:
                del values[ref]
    return values


def _last_use(program: Program, runs: list[Run]) -> dict[int, list[Ref]]:
    """Return, for each run, the values that nothing reads after it."""
    kept = {ref for ref in program.outputs.values() if ref is not None}
    seen: dict[Ref, int] = {}
    inside = {step.number: number for number, run in enumerate(runs) for step in (*run.steps, *run.closing)}
    for number, run in enumerate(runs):
        for step in (*run.steps, *run.closing):
            for ref in step.operands:
                if inside.get(ref.step) != number or not run.lead:
                    seen[ref] = number
    found: dict[int, list[Ref]] = {}
    for ref, number in seen.items():
        if ref not in kept:
            found.setdefault(number, []).append(ref)
    return found


def evaluate_step(step: Step, values: Mapping[Ref, Enclosure], arithmetic: Arithmetic) -> list[Enclosure | None]:
    """Return the results of one step on whole operands."""
    return _apply(step, replace_refs(step.args, values.__getitem__), replace_refs(step.kwargs, values.__getitem__),
                  [values[ref] for ref in step.operands], Local(arithmetic, step))  # fmt: skip


def _apply(step: Step, args: Any, kwargs: Any, operands: list[Enclosure], local: Local) -> list[Enclosure | None]:
    result = registry()[step.name].bound(local, *args, **kwargs)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return [value if value is None else _settled(step, value, operands) for value in results]


def _settled(step: Step, value: Enclosure, operands: list[Enclosure]) -> Enclosure:
    """Give infinities and NaN their class: see enclosure.py for what mid and bound mean then."""
    rule = registry()[step.name]
    if rule.classed or value.bound is None or all_finite(value.bound):
        return value
    finite = value.mid.isfinite()
    bound = torch.where(value.bound.isnan(), torch.inf, value.bound)
    if bool(finite.all()) or rule.aligned != "right" or rule.tiles(step) == 0:
        exact = ~finite & _all(op.bound is None or not bool((op.bound != 0).any()) for op in operands)
        unknown = ~(finite | exact | (value.bound == 0))
        mid = torch.where(unknown, torch.nan, value.mid) if bool(unknown.any()) else value.mid
        return Enclosure(mid, torch.where(exact, 0.0, bound))
    certain, infinite, not_a_number = finite.new_ones(()), finite.new_zeros(()), finite.new_zeros(())
    bounded, signed = finite.new_ones(()), finite.new_ones(())
    for op in operands:
        if not op.floating:
            certain = certain & op.certain()
            continue
        sure = op.certain()
        certain = certain & sure
        bounded = bounded & op.bound_or_zero().isfinite()
        signed = signed & (op.mid.abs() > op.bound_or_zero() * DISCRETE)
        infinite = infinite | (sure & op.mid.isinf())
        not_a_number = not_a_number | (sure & op.mid.isnan())
    exact = (value.bound == 0) | not_a_number | (certain & (infinite | value.mid.isnan()))
    if rule.poles:
        exact = exact | certain
    if rule.keeps_inf:
        exact = exact | (infinite & bounded & value.mid.isinf())
    if rule.scales_inf:
        exact = exact | (infinite & bounded & signed & value.mid.isinf())
    overflow = certain & ~infinite & value.mid.isinf() & ~exact
    mid = torch.where(finite | exact | overflow, value.mid, torch.nan)
    bound = torch.where(finite, bound, torch.where(exact, 0.0, torch.inf))
    return Enclosure(mid, bound)


def _all(conditions: Any) -> bool:
    return all(bool(c) for c in conditions)


def _evaluate_tiled(run: Run, used: list[Ref], values: Values, arithmetic: Arithmetic) -> None:
    steps = {step.number: step for step in run.steps}
    whole = {ref: _Assembled(steps[ref.step].metas[ref.output].shape) for ref in used if ref.step in steps}  # type: ignore[union-attr]
    totals = {step.number: _Total() for step in run.closing}

    read_last = _read_last(run, whole)

    def work(pieces: Iterator[tuple[int, tuple[slice, ...]]]) -> Arithmetic:
        own = dataclasses.replace(arithmetic, ties=0, rad_lost=False)
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

    for own in share(work, list(enumerate(run.pieces())), values.device()):
        arithmetic.ties += own.ties
        arithmetic.rad_lost |= own.rad_lost
    for ref, assembled in whole.items():
        values[ref] = assembled.value()
    for step in run.closing:
        values[Ref(step.number)] = registry()[step.name].finish(Local(arithmetic, step), totals[step.number].value())  # type: ignore[misc]


def _evaluate_piece(
    run: Run,
    number: int,
    piece: tuple[slice, ...],
    values: Values,
    locals_: list[Local],
    totals: Mapping[int, _Total],
    read_last: Mapping[int, list[Ref]],
) -> dict[Ref, Enclosure]:
    """Return the results of the run's steps within one tile; parts of closing sums go to their totals."""
    found: dict[Ref, Enclosure] = {}
    inside = {step.number for step in run.steps}
    for step, local in zip((*run.steps, *run.closing), locals_, strict=True):
        operands = [
            found[ref] if ref.step in inside else values.tile(ref, narrow_index(meta, step, piece))
            for ref, meta in zip(step.operands, step.operand_metas, strict=True)
        ]
        elementwise = registry()[step.name].tiles is elementwise_tiles
        if elementwise:
            operands = [_compact(operand) for operand in operands]
        args, kwargs = replace_refs((step.args, step.kwargs), _each(operands))
        if step.number in totals:
            totals[step.number].add(number, registry()[step.name].partial(local, *args, **kwargs))  # type: ignore[misc]
        else:
            for output, value in enumerate(_apply(step, args, kwargs, operands, local)):
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
    parts = [part for part in (value.mid, value.bound, value.unsure) if part is not None]
    repeats = [
        n > 1 and all(part.dim() == len(value.shape) and part.stride(d) == 0 for part in parts)
        for d, n in enumerate(value.shape)
    ]
    if not any(repeats):
        return value
    index = tuple(slice(0, 1) if again else slice(None) for again in repeats)
    return Enclosure(*(None if p is None else p[index] for p in (value.mid, value.bound, value.unsure)))  # type: ignore[arg-type]


def _expanded(value: Enclosure, shape: tuple[int, ...]) -> Enclosure:
    if tuple(value.shape) == shape:
        return value
    parts = (value.mid, value.bound, value.unsure)
    return Enclosure(*(None if part is None else part.expand(shape) for part in parts))  # type: ignore[arg-type]


def _each(operands: list[Enclosure]) -> Callable[[Ref], Enclosure]:
    """Return a function that hands out the operands in order."""
    found = iter(operands)
    return lambda _: next(found)


class _Total:
    """A sum put together from the parts of tiles: mids and bounds add up; infinities and NaN keep their class."""

    def __init__(self) -> None:
        self.mid: torch.Tensor | None = None
        self.bound: torch.Tensor | None = None
        self.certain: torch.Tensor | None = None
        self.loose: torch.Tensor | None = None
        self.early: dict[int, Enclosure] = {}
        self.next, self.lock = 0, threading.Lock()

    def add(self, number: int, part: Enclosure) -> None:
        """Take in the part of one tile; the parts are added in the order of the tiles, whichever thread is first."""
        with self.lock:
            self.early[number] = part
            while self.next in self.early:
                self._add(self.early.pop(self.next))
                self.next += 1

    def _add(self, part: Enclosure) -> None:
        bound = part.bound_or_zero()
        if not all_finite(bound) or not all_finite(part.mid):
            certain, loose = ~part.mid.isfinite() & (bound == 0), ~bound.isfinite()
            self.certain = certain if self.certain is None else self.certain | certain
            self.loose = loose if self.loose is None else self.loose | loose
        if self.mid is None or self.bound is None:
            self.mid, self.bound = part.mid, bound
        else:
            self.mid, self.bound = self.mid + part.mid, (self.bound + bound) * _ADDED

    def value(self) -> Enclosure:
        """Return the enclosure of the whole sum."""
        if self.mid is None or self.bound is None:
            raise UsageError("an empty run has no value")
        if self.certain is None or self.loose is None:
            return Enclosure(self.mid, self.bound)
        certain = self.certain & ~self.loose & ~self.mid.isfinite()
        mid = torch.where(certain | self.mid.isfinite(), self.mid, torch.nan)
        bound = torch.where(self.mid.isfinite(), self.bound, torch.inf)
        return Enclosure(mid, torch.where(certain, 0.0, torch.where(bound.isnan(), torch.inf, bound)))


_ADDED = 1 + 2.0**-52  # the float64 rounding of adding one more tile's bound


class _Assembled:
    """A tensor put together from tiles."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.parts: dict[str, torch.Tensor] = {}
        self.begun, self.lock = False, threading.Lock()

    def put(self, piece: tuple[slice, ...], box: tuple[int, ...], tile: Enclosure) -> None:
        box = box + self.shape[len(box) :]
        given = {name: getattr(tile, name) for name in ("mid", "bound", "unsure")}
        with self.lock:
            for name, part in given.items():
                if part is not None and name not in self.parts:
                    self.parts[name] = _room(self.shape, part)
                    if self.begun:  # earlier tiles had none
                        self.parts[name].zero_()
            self.begun = True
            present = list(self.parts)
        for name in present:
            self.parts[name][piece] = 0 if given[name] is None else given[name].expand(box)

    def value(self) -> Enclosure:
        if not self.parts:
            raise UsageError("an empty run has no value")
        return Enclosure(self.parts["mid"], self.parts.get("bound"), self.parts.get("unsure"))


def _room(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor; in main memory numpy's, which asks the system for large pages where there are any.

    Touching 32 MB for the first time in pages of 4 kB costs as much as ten operations on them.
    """
    if like.device.type != "cpu":
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    kind = like.new_empty(0).numpy().dtype
    return torch.from_numpy(np.empty(shape, dtype=kind))
