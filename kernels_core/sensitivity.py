"""What these inputs and bounds would show: which faults of a result would lie outside the admissible set.

From mid and bound alone, on at most 8192 elements spread over the tensor: the exact value takes the kernel's place,
the fault is applied to it, the result rounded to the tensor's own format F, in which a kernel returns it, and the
element would be flagged where

    |RN_F(fault(mid)) - mid| > bound.

So a factor that F is too coarse to show is none: 1.001 x is x again in bfloat16, which an exact copy has to return.

Faults inside a sum are foreseen from the number of its terms. A bound of n u S (S the sum of the terms' magnitudes)
says S = bound / (n u); two operands of each term rounded to a format of unit roundoff v err by v |t| / sqrt(3) each, in
the sum by at least v sqrt(2/3) S / sqrt(n) in the root mean square (sum t^2 >= S^2 / n), hence by

    r = sqrt(2/3) v / (u n^(3/2))   of the bound, and beyond it on erfc(1 / (r sqrt(2))) of the elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from kernels_core.audit.sample import spread
from kernels_core.formats import (
    BFLOAT16,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    Format,
    format_of,
    round_to_nearest,
)
from kernels_core.program import Program, Step
from kernels_core.reference import Result
from kernels_core.report import Report, Sensitivity

Tensor = torch.Tensor
LIMIT = 8192
TF32 = Format("tf32", torch.float32, 11, -126, 127, FLOAT32.max_finite)
NARROWER: Mapping[str, Format] = {
    fmt.name: fmt for fmt in (FLOAT32, TF32, BFLOAT16, FLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2)
}
POWERS = range(1, 25)


def sensitivity(result: Result) -> Sensitivity | None:
    """Return the shares of elements on which each fault would be flagged; None for tensors without such elements."""
    if not result.enclosure.floating or not result.meta.numel:
        return None
    index = spread(result.meta.numel, result.enclosure.mid.device, LIMIT)
    mid, bound = _at(result, index)
    neighbour, other = _at(result, (index + 1) % result.meta.numel)
    own = format_of(result.meta.dtype)
    formats = [fmt for fmt in NARROWER.values() if fmt.precision < own.precision]

    def flagged(value: Tensor, limit: Tensor = bound) -> float:
        return _share((round_to_nearest(value, own) - mid).abs() > limit)

    powers = torch.tensor([1 + 2.0**-k for k in POWERS], dtype=torch.float64, device=mid.device)
    by_power = (round_to_nearest(mid * powers[:, None], own) - mid).abs() > bound

    return Sensitivity(
        rounding={fmt.name: flagged(round_to_nearest(mid, fmt)) for fmt in formats},
        factors=dict(zip(POWERS, by_power.double().mean(1).tolist(), strict=True)),
        factor_1_001=flagged(mid * 1.001),
        zeroed=_share(mid.abs() > bound),
        swapped=flagged(neighbour, torch.minimum(bound, other)),
        in_sum=_in_sum(result, formats) if bool((bound > 0).any()) else {},
    )


def insensitive(report: Report, name: str) -> list[str] | None:
    """Return the tensors on which rounding to this format would show nowhere; None where no tensor is wider than it."""
    wider = {row.name: row.sensitivity.rounding[name] for row in report.tensors
             if row.sensitivity is not None and name in row.sensitivity.rounding}  # fmt: skip
    return [tensor for tensor, share in wider.items() if share == 0] if wider else None


def _at(result: Result, index: Tensor) -> tuple[Tensor, Tensor]:
    bound = result.enclosure.bound_or_zero().expand(result.enclosure.shape)
    return result.enclosure.mid.reshape(-1)[index], bound.reshape(-1)[index]


def _share(flagged: Tensor) -> float:
    return float(flagged.double().mean())


def _in_sum(result: Result, formats: list[Format]) -> dict[str, float]:
    """Return the shares for operands of the longest sum rounded to each format, where the sum makes the bound."""
    terms = _terms(result.source.program, result.name) if result.source is not None else 1
    own = format_of(result.meta.dtype)
    if terms < 2 or own.precision < FLOAT32.precision:
        return {}
    found = {}
    for fmt in formats:
        reach = math.sqrt(2 / 3) * fmt.unit_roundoff / (own.unit_roundoff * terms**1.5)
        found[fmt.name] = math.erfc(1 / (reach * math.sqrt(2)))
    return found


def _terms(program: Program, name: str) -> int:
    """Return the number of terms of the longest sum or product on the way to a result."""
    return max((_of_step(step) for step in program.only([name]).steps), default=1)


def _of_step(step: Step) -> int:
    if step.name in ("aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.baddbmm.default"):
        return step.operand_metas[-1].shape[-2]
    if step.name in ("aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim"):
        return step.operand_metas[0].numel // max(1, step.meta.numel)
    return 1
