"""What a pass shows, in the coverage table: a row gets its sensitivity, and a covered one its precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch

from kernels_core.audit import audit, for_each
from kernels_core.reference import Check, Result
from kernels_core.report import SUSPECT_BITS, Precision, TensorReport, Verdict
from kernels_core.sensitivity import sensitivity


def audited(
    rows: Sequence[TensorReport],
    check: Check,
    upstream: Sequence[torch.Tensor],
    results: Mapping[str, Result],
    returned: Mapping[str, torch.Tensor | None],
) -> list[TensorReport]:
    """Return the rows with their sensitivity, and the precision of those that are covered, some of which are suspect.

    Args:
        rows: of the table.
        check: as `audit`.
        upstream: as `audit`.
        results: as `audit`.
        returned: outputs and gradients of the kernel.
    """
    covered = [row.name for row in rows if row.verdict is Verdict.COVERED and row.elements]
    actual = {name: tensor for name in covered if (tensor := returned.get(name)) is not None}
    found = audit(check, upstream, results, actual)
    seen = for_each(
        {row.name: results[row.name].enclosure.mid for row in rows}, lambda name: sensitivity(results[name])
    )
    foreseen = [dataclasses.replace(row, sensitivity=seen[row.name]) for row in rows]
    return [_with_precision(row, found[row.name]) if row.name in found else row for row in foreseen]


def _with_precision(row: TensorReport, precision: Precision) -> TensorReport:
    if not precision.suspect:
        return dataclasses.replace(row, precision=precision)
    return dataclasses.replace(row, precision=precision, verdict=Verdict.SUSPECT, note=_reason(precision))


def _reason(precision: Precision) -> str:
    if precision.stored_in:
        return (
            f"inside its worst-case bound, but every result is a value of {precision.stored_in}: rounded to that format"
        )
    if max(precision.bits) <= SUSPECT_BITS and not precision.works_in:
        times = f"{2**precision.unrounded_bits:.0f} times further off than roundings explain"
        return f"inside its worst-case bound, but before their last rounding results are {times}"
    if precision.bits_lost <= SUSPECT_BITS and not precision.works_in:
        return "inside its worst-case bound, but " + (
            f"all results share a factor {2**precision.common_bits:.0f} times further from 1 than roundings explain"
            if precision.common_bits > precision.peak_bits
            else f"single results are {2**precision.peak_bits:.0f} times further off than roundings explain"
        )
    lost = f"inside its worst-case bound, but {precision.bits_lost:.1f} bits less precise than the reference"
    if precision.works_in:
        return f"{lost}: its errors are those of sums and products that read {precision.works_in} operands"
    return f"{lost} in its own dtypes: it seems to compute in a lower precision"
