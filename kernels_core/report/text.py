"""A report as plain lines, for exceptions and notebooks."""

from __future__ import annotations

from kernels_core.report.case import Report


def summary(report: Report) -> str:
    """Return the report as plain lines."""
    lines = [f"{report.name}: {report.verdict} (seed {report.seed}, {report.granted})"]
    if report.raised is not None:
        lines += [f"{report.raised.phase} raised: {report.raised.message}", report.raised.frames]
    for found in report.tensors:
        lines.append(
            f"  {found.name} {found.dtype}{list(found.shape)}: {found.covered} of {found.elements} covered, "
            f"{found.violated} violated, {found.undecided} undecided, {found.unconstrained} unconstrained"
        )
        if found.failure is not None:
            lines += [f"    {line}" for line in (found.failure.pattern, *found.failure.diagnosis)]
            for e in found.failure.elements[:3]:
                admissible = f"[{e.lower!r}, {e.upper!r}]"
                lines.append(f"    {list(e.index)}: got {e.actual!r}, admissible {admissible}, exact {e.exact!r}")
        if found.note:
            lines.append(f"    {found.note}")
    lines += [f"  {', '.join(found.tensors)}: {found.text}" for found in report.consistent]
    lines += [f"  battery {row.name}: {row.outcome}: {row.evidence}" for row in report.battery]
    return "\n".join(lines)
