"""One step of a program on enclosures: the rule, then the class of infinities and NaN."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernels_core.doubles.evaluation import about_mid, refined
from kernels_core.enclosure import Enclosure, all_finite, exactly
from kernels_core.filter.arithmetic import DISCRETE, Arithmetic, Local
from kernels_core.filter.flushing import flushed
from kernels_core.filter.overflow import carried
from kernels_core.filter.saturation import limited
from kernels_core.program import Ref, Step, replace_refs
from kernels_core.rules import registry

_EITHER_SIGN = 2.0**-1000  # as a bound: above 0, and nothing beside any other value


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
        return value.each_part(lambda part: part[index])


def evaluate_step(step: Step, values: Mapping[Ref, Enclosure], arithmetic: Arithmetic) -> list[Enclosure | None]:
    """Return the results of one step on whole operands."""
    return apply_rule(step, replace_refs(step.args, values.__getitem__), replace_refs(step.kwargs, values.__getitem__),
                  [values[ref] for ref in step.operands], Local(arithmetic, step))  # fmt: skip


def apply_rule(step: Step, args: Any, kwargs: Any, operands: list[Enclosure], local: Local) -> list[Enclosure | None]:
    """Return the results of one step; `operands` are the tensors among the arguments, in order."""
    given, named, read = args, kwargs, operands
    if step.free_zeros:
        read = with_either_sign(step, operands)
        given, named = step.filled(read)
    given = about_mid(step, given) if local.arithmetic.doubles else given
    result = registry()[step.name].bound(local, *given, **named)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    factor = local.arithmetic.smallest_factor
    settled = [value if value is None else _settled(step, value, read, factor) for value in results]
    stored = [_stored(step, output, value) for output, value in enumerate(settled)]
    if local.arithmetic.doubles:
        return refined(step, args, kwargs, operands, stored, local)
    return flushed_results(step, stored) if local.flushes else stored


def with_either_sign(step: Step, operands: Sequence[Enclosure]) -> list[Enclosure]:
    """Return the operands with a bound above 0 for zeros of either sign: rules then see both sides of a jump or pole.

    0 / 0 is NaN whatever the signs.
    """
    found = list(operands)
    for place in step.free_zeros:
        value = operands[place]
        free = (value.mid == 0) & (value.bound_or_zero() == 0)
        if not bool(free.any()):
            continue
        if len(operands) == 2 and place == 1 and ".div." in step.name:
            free = free & ((operands[0].mid != 0) | (operands[0].bound_or_zero() != 0))
        bound = torch.where(free, _EITHER_SIGN, value.bound_or_zero())
        found[place] = dataclasses.replace(value, mid=value.mid.expand(bound.shape), bound=bound)
    return found


def flushed_results(step: Step, values: Sequence[Enclosure | None]) -> list[Enclosure | None]:
    """Return the results of a step as they may be flushed."""
    return [
        value if value is None or meta is None else flushed(value, meta.dtype)
        for value, meta in zip(values, step.metas, strict=True)
    ]


def _stored(step: Step, output: int, value: Enclosure | None) -> Enclosure | None:
    """Return what a format without infinities makes of values beyond it, where the reference itself stores them so."""
    meta = step.metas[output] if output < len(step.metas) else None
    return value if value is None or meta is None or step.backward else limited(value, meta.dtype)


def _settled(step: Step, value: Enclosure, operands: list[Enclosure], factor: float) -> Enclosure:
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
    if (beyond := carried(step, rule, operands, factor)) is not None:
        overflow = overflow | (beyond & value.mid.isinf())
    mid = torch.where(finite | exact | overflow, value.mid, torch.nan)
    bound = torch.where(finite, bound, torch.where(exact, 0.0, torch.inf))
    return Enclosure(mid, bound)


def _all(conditions: Any) -> bool:
    return all(bool(c) for c in conditions)
