"""The audit before the last rounding: what a 16-bit result still says of the float32 value that was rounded to it.

A reference that computes in float32 and casts its result to 16 bits has a value x before that cast, and so has every
kernel: v, of which it returned a = RN(v). No v further than half a unit in the last place of a rounds to a, so

    |v - x| >= d = max(0, |a - x| - h),    h = 2^(e - p), e the exponent of a (emin below the normal range).

d is what no rounding to 16 bits explains, so it has to be explained by the steps before: it is compared, as the error
of a float32 kernel is, with the errors that the reference has before its cast, where PyTorch runs it and where legal
evaluations do. An honest kernel has d <= |v - x| in each element, so it loses no more bits than as a float32 kernel; a
16-bit result's own rounding, 2^13 or 2^16 float32 roundings wide, no longer hides a factor of 1.001 or one wrong step.

Only where the reference ends in a cast from float32 to 16 bits, and where no decision on computed values makes single
elements differ (continuous.py). Subnormal results that the profile lets a kernel flush have h = the smallest normal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from kernels_core.audit.continuous import continuous
from kernels_core.audit.measures import Measures, bits
from kernels_core.audit.sample import Sample, taken
from kernels_core.formats import Format, format_of
from kernels_core.program import Meta, Program, Ref, Step
from kernels_core.rules import casts, movement

Tensor = torch.Tensor
KNOWN = 2.0**-26  # of the bound: what the exact value itself may be off (filter/run.py)


@dataclasses.dataclass(frozen=True)
class Unrounded(Sample):
    """A sample whose own errors are the kernel's least ones before the last rounding.

    All errors are in units of `bound`, here the larger of the result's own and of h of the exact value. The former is
    at least what is granted before the cast, so an element behind a cancellation weighs by what its sums may err; where
    the cast grants nearly all it is as small as the rounding of this one value, and h takes its place.
    """

    least: Tensor

    @classmethod
    def before(cls, sample: Sample, *, flushes: bool) -> Unrounded:
        """Return the same elements before their last rounding; `flushes` where subnormal results may be zero."""
        fmt = format_of(sample.actual.dtype)
        actual = taken(sample.actual, sample.index).double()
        error, unit = actual - sample.mid, torch.maximum(half_ulp(sample.mid, fmt), sample.bound)
        least = error.abs() - half_ulp(actual, fmt, flushes) - KNOWN * sample.bound
        return cls(sample.index, sample.mid, unit, sample.actual, error.sign() * least.clamp_(min=0.0) / unit)

    def lost(self, shown: Measures, *, settled: bool) -> float:
        """Return the bits lost against the errors shown before the cast, in rms or in the largest error."""
        own = Measures.of(self.least, self.mid / self.bound)
        return max(bits(own.rms, shown.rms, settled=settled), bits(own.peak, shown.peak, settled=settled))


def half_ulp(values: Tensor, fmt: Format, flushes: bool = False) -> Tensor:
    """Return h of values of a format: what is further from one of them does not round to it."""
    size = values.abs().clamp_(min=fmt.smallest_normal)
    half = torch.ldexp(torch.full_like(size, 0.5), torch.frexp(size).exponent - fmt.precision)
    return half.clamp_(min=fmt.smallest_normal) if flushes else half


def without_last_casts(program: Program) -> Program:
    """Return the program of those results that end in a cast from float32 to 16 bits, without this cast."""
    numbered, allowed = {step.number: step for step in program.steps}, continuous(program)
    more, outputs, metas = list[Step](), dict[str, Ref | None](), dict[str, Meta]()
    for name in allowed:
        ref = program.outputs[name]
        wide = None if ref is None else _before_cast(ref, numbered, more)
        if wide is not None:
            outputs[name], metas[name] = wide, _wide(program.output_metas[name])
    steps = (*program.steps, *more)
    found = dataclasses.replace(program, steps=steps, outputs=outputs, output_metas=metas)
    return found.only(list(outputs))


def _before_cast(ref: Ref, numbered: Mapping[int, Step], more: list[Step]) -> Ref | None:
    """Return what a result is before its cast; steps that only pass it on are repeated in float32, in `more`."""
    step = numbered[ref.step]
    if step.name in casts.FAMILY:
        narrowing = step.meta.dtype.itemsize == 2 and step.operand_metas[0].dtype is torch.float32
        return step.operands[0] if narrowing else None
    if len(step.operands) != 1 or not (step.name == "exactref.factored" or step.name in movement.FAMILY):
        return None
    inner = _before_cast(step.operands[0], numbered, more)
    if inner is None or ref.output:
        return None
    args = tuple(inner if isinstance(value, Ref) else value for value in step.args)
    number = max(numbered) + 1 + len(more)
    more.append(dataclasses.replace(step, number=number, args=args, metas=(_wide(step.meta),),
                                    operand_metas=(_wide(step.operand_metas[0]),)))  # fmt: skip
    return Ref(number)


def _wide(meta: Meta) -> Meta:
    return Meta(meta.shape, torch.float32)
