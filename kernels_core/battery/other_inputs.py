"""A verification of its own at other inputs, judged for an item of the battery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernels_core.battery.judgement import Judgement, one_line
from kernels_core.errors import ExactRefError


def look_again(judgement: Judgement, label: str, inputs: Mapping[str, Any]) -> bool:
    """Verify the kernel at these inputs; return False where the reference has nothing to say of them.

    Args:
        judgement: of the item; a tensor that the plain comparison found violated is not counted again.
        label: what is different about the inputs.
        inputs: of the kernel, by name.
    """
    subject = judgement.subject
    try:
        report = subject.again(inputs, wrt=list(subject.wrt))
    except (ExactRefError, torch.OutOfMemoryError):
        return False
    if report.raised is not None:
        judgement.refusals.append(f"{label}: {report.raised.phase} raised {one_line(report.raised.message)}")
        return True
    judgement.done.append(label)
    for row in report.tensors:
        if row.violated and row.name not in subject.violated:
            where = f", {row.failure.pattern}" if row.failure is not None else f", {row.note}" if row.note else ""
            judgement.fault(f"{label}: {row.violated} of {row.elements} elements of {row.name} violated{where}")
        elif row.undecided or row.unconstrained:
            judgement.remark(f"{label}: {row.undecided + row.unconstrained} elements of {row.name} not decided")
    return True
