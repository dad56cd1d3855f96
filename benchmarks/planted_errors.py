"""Errors planted in random elementwise programs: those that a sound check should see."""

from __future__ import annotations

import torch

from benchmarks.drawing import drawn
from benchmarks.jitter import Jitter
from kernels_core.coverage import Element
from kernels_core.formats import format_of, next_down, next_up
from kernels_core.reference import Result, reference
from kernels_core.result import ComplexResult
from kernels_core.tracing.complex_parts import parts_of

Tensor = torch.Tensor
RUNS = 16


def planted_errors(seed: int, dtype: torch.dtype = torch.float32) -> tuple[int, int]:
    """Return (caught, planted): errors of 64 times the true rounding error, or in 8 bit of two steps of the format.

    The true rounding error of an element is the largest deviation over 16 evaluations in which the result of every step
    is moved by up to one unit roundoff, at least half an ulp. In 8 bit the steps are planted where these evaluations
    agree. Of a complex result the real part is damaged and the imaginary one must stay covered.
    """
    program, _, inputs = drawn(seed, dtype, elementwise=True)
    whole = reference(program)(*inputs)
    evaluations = [_jittered(program, inputs, run) for run in range(RUNS)]
    if isinstance(whole, ComplexResult):
        kept = whole.imag.covers(parts_of(program(*inputs))[1])
        caught, planted = _planted(whole.real, evaluations)
        return int((caught & kept).sum()), int(planted.sum())
    caught, planted = _planted(whole, evaluations)
    return int((caught & planted).sum()), int(planted.sum())


def _jittered(program: object, inputs: list[Tensor], run: int) -> Tensor:
    with Jitter(run):
        return parts_of(program(*inputs))[0]  # type: ignore[operator]


def _planted(result: Result, evaluations: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return where the damage was caught, and where there was some."""
    stacked = torch.stack([one.double() for one in evaluations])
    dtype, exact = result.meta.dtype, result.enclosure.mid
    fmt = format_of(dtype)
    if dtype.itemsize == 1:
        usable = (stacked == stacked[0]).all(0) & stacked[0].isfinite()
        value = torch.where(usable, stacked[0], 0.0)
        two_down, two_up = next_down(next_down(value, fmt), fmt), next_up(next_up(value, fmt), fmt)
        damaged = torch.where(value > 0, two_down, two_up)  # toward zero, so that nothing saturates
    else:
        spread = (stacked - exact).abs().amax(0).maximum(exact.abs() * fmt.unit_roundoff)
        damaged = exact + 64 * spread + max(2.0**-140, 4 * fmt.eta)
        usable = damaged.to(dtype).isfinite() & exact.isfinite()
    return (result.verdict(damaged.to(dtype)) == Element.VIOLATED) & usable, usable
