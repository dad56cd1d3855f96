"""A verification of its own at other inputs, judged for an item of the battery."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels_core.battery.judgement import Judgement, one_line
from kernels_core.errors import ExactRefError
from kernels_core.report import Report


def look_again(
    judgement: Judgement, label: str, inputs: Mapping[str, Any], again: Callable[..., Report] | None = None
) -> bool:
    """Verify the kernel at these inputs; return False where the reference has nothing to say of them.

    Args:
        judgement: of the item; a tensor that the plain comparison found violated is not counted again.
        label: what is different about the inputs.
        inputs: of the kernel, by name.
        again: verifies, the subject's own by default.
    """
    try:
        report = (again or judgement.subject.again)(inputs, wrt=list(judgement.subject.wrt))
    except (ExactRefError, torch.OutOfMemoryError):
        return False
    count(judgement, label, report)
    return True


def count(judgement: Judgement, label: str, report: Report) -> None:
    """Count a verification at other inputs: what it refused, found violated for the first time, or left open."""
    if report.raised is not None:
        judgement.refusals.append(f"{label}: {report.raised.phase} raised {one_line(report.raised.message)}")
        return
    judgement.done.append(label)
    for row in report.tensors:
        if row.violated and row.name not in judgement.subject.violated:
            where = f", {row.failure.pattern}" if row.failure is not None else f", {row.note}" if row.note else ""
            judgement.fault(f"{label}: {row.violated} of {row.elements} elements of {row.name} violated{where}")
        elif row.undecided or row.unconstrained:
            judgement.remark(f"{label}: {row.undecided + row.unconstrained} elements of {row.name} not decided")
