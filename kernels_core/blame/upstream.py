"""The upstream gradient is lost on its way: it becomes one number, or never enters.

What enters a gradient is read off the kernel's own program: all ways from the upstream gradient to the tensor lead
through one operation whose result is a single element, or there is no way. That it is the fault is shown by the values:
without any rounding they are those that the true derivative has for this one number (or for ones) in every place.
"""

from __future__ import annotations

import torch

from kernels_core.blame.subject import Subject, line
from kernels_core.program import Ref, Step
from kernels_core.tracing.arguments import cotangent_name

Tensor = torch.Tensor


def lost_upstream(subject: Subject, name: str) -> list[tuple[Step, str]]:
    """Return the step in which the upstream gradient is lost, with the reason; empty where it is not."""
    given = [cotangent_name(label) for label in subject.setting.check.cotangents]
    if not name.startswith("grad_") or len(given) != 1 or subject.setting.upstream[0].numel() < 2:
        return []
    row, (upstream,) = subject.rows[name], given
    start = subject.program.inputs.get(upstream)
    if start is None or not _enters(subject, row, Ref(start), None):
        step = subject.steps[row.step]
        return [(step, f"{upstream} does not enter")] if line(step) and _is_for(subject, name, 1.0) else []
    for step in subject.ancestors(row):
        ref = Ref(step.number)
        value = subject.exact.get(ref)
        if value is None or value.numel() != 1 or not value.is_floating_point() or not line(step):
            continue
        if _enters(subject, ref, Ref(start), None) and not _enters(subject, row, Ref(start), step.number):
            return [(step, f"{upstream} becomes one number")] if _is_for(subject, name, float(value)) else []
    return []


def _enters(subject: Subject, result: Ref, source: Ref, without: int | None) -> bool:
    """Return True where a result depends on a source in a way that does not lead through a step."""
    needed = {result.step} - {without}
    for step in reversed(subject.program.steps):
        if step.number in needed:
            needed.update(ref.step for ref in step.operands if ref.step != without)
    return source.step in needed


def _is_for(subject: Subject, name: str, number: float) -> bool:
    """Return True where the kernel's exact values are the true ones for an upstream gradient of this one number."""
    setting = subject.setting
    replaced = [torch.full_like(g, number, memory_format=torch.contiguous_format) for g in setting.upstream]
    admitted = setting.admits(("upstream, blamed", number), upstream=replaced)
    if admitted is None:
        return False
    found, value = admitted[name], subject.exact[subject.rows[name]]
    return bool(((value - found.mid).abs() <= found.bound_or_zero()).all())
