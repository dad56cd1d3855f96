"""Precision is lost: right in exact arithmetic, wrong once each step rounds to its format.

Three counterfactuals, the first that holds: a single line that does not round; all the roundings to narrower formats
left out; a single operation of the result's own format that returns its exact value (a cancellation, which makes
earlier roundings visible).
"""

from __future__ import annotations

import collections
import math

import torch

from kernels_core.blame.replay import CannotReplayError, replay
from kernels_core.blame.subject import Subject, line
from kernels_core.diagnosis.evidence import Evidence
from kernels_core.formats import Format, format_of, round_to_nearest
from kernels_core.program import Ref, Step

Tensor = torch.Tensor
LOST = "precision is lost here"


def lost_precision(subject: Subject, evidence: Evidence) -> list[tuple[Step, str]]:
    """Return the steps to blame for a tensor, with the reason; empty where nothing can be said."""
    name = evidence.result.name
    steps = [s for s in subject.ancestors(subject.rows[name]) if _format(s) is not None and line(s)]
    for find in (_one_line, _narrow_lines, _one_value):
        found = find(subject, evidence, steps)
        if found or subject.late():
            return found
    return []


def _one_line(subject: Subject, evidence: Evidence, steps: list[Step]) -> list[tuple[Step, str]]:
    lines: dict[str, list[Step]] = {}
    for step in steps:
        lines.setdefault(line(step), []).append(step)
    best: tuple[float, list[Step], Tensor] | None = None
    for members in lines.values():
        if subject.late():
            break
        value = _without_rounding(subject, evidence, members)
        if value is not None and (best is None or _used(evidence, value) < best[0]):
            best = (_used(evidence, value), members, value)
    if best is None:
        return []
    _, members, value = best
    reason = f"without its {_roundings(members)} every element is covered"
    return [(members[0], reason + _bits(subject, evidence, value))]


def _one_value(subject: Subject, evidence: Evidence, steps: list[Step]) -> list[tuple[Step, str]]:
    """The first operation whose exact value, rounded once, makes the tensor right: no narrow format is to blame."""
    name = evidence.result.name
    own = format_of(evidence.actual.dtype).precision
    for step in steps:
        fmt, ref = _format(step), Ref(step.number)
        if fmt is None or fmt.precision < own or ref == subject.rows[name] or subject.late():
            continue
        exact = round_to_nearest(subject.exact[ref], fmt)
        if not torch.equal(exact, subject.rounded[ref]) and _mends(subject, name, {ref: exact}):
            return [(step, f"{_kept(subject, step, fmt)}; with its exact value every element is covered")]
    return []


def _narrow_lines(subject: Subject, evidence: Evidence, steps: list[Step]) -> list[tuple[Step, str]]:
    """All roundings to formats narrower than the widest one."""
    widest = max((f.precision for s in steps if (f := _format(s))), default=0)
    narrow = [s for s in steps if (f := _format(s)) and f.precision < widest]
    value = _without_rounding(subject, evidence, narrow) if narrow else None
    if value is None:
        return []
    lines: dict[str, list[Step]] = {}
    for step in narrow:
        lines.setdefault(line(step), []).append(step)
    reason = f"without the {_roundings(narrow)} of {len(lines)} lines every element is covered"
    reason += _bits(subject, evidence, value)
    return [(members[0], reason if not k else _roundings(members)) for k, members in enumerate(lines.values())][:2]


def _format(step: Step) -> Format | None:
    meta = step.metas[0] if step.metas else None
    return format_of(meta.dtype) if meta is not None and meta.dtype.is_floating_point else None


def _without_rounding(subject: Subject, evidence: Evidence, members: list[Step]) -> Tensor | None:
    """Return the tensor as it is when these steps do not round, None where an element is still outside."""
    name = evidence.result.name
    try:
        values = replay(subject.program, subject.start, rounded=True, exempt={step.number for step in members})
    except CannotReplayError:
        return None
    value = values[subject.rows[name]]
    return None if bool(subject.outside(name, value).any()) else value


def _mends(subject: Subject, name: str, replacement: dict[Ref, Tensor]) -> bool:
    try:
        return subject.mended(name, replacement, rounded=True)
    except CannotReplayError:
        return False


def _used(evidence: Evidence, value: Tensor) -> float:
    return float(((value - evidence.mid).abs() / evidence.bound).nan_to_num(nan=0.0).max())


def _roundings(members: list[Step]) -> str:
    """Return "3 roundings to float16", those to the narrowest formats."""
    counts = collections.Counter(f for s in members if (f := _format(s)))
    fmt = min(counts, key=lambda f: f.precision)
    return f"{counts[fmt]} rounding{'s' * (counts[fmt] > 1)} to {fmt.name}"


def _bits(subject: Subject, evidence: Evidence, value: Tensor) -> str:
    """Return by how many bits the error of the failing elements shrinks."""
    failing = evidence.failing
    unit = format_of(evidence.actual.dtype).unit_roundoff * evidence.mid.abs()
    after = torch.maximum((value - evidence.mid).abs(), unit / 2)[failing].square().mean().sqrt()
    before = (evidence.value - evidence.mid).abs()[failing].square().mean().sqrt()
    bits = float(torch.log2(before / after)) if float(after) > 0 else math.inf
    return f" ({bits:.0f} bits lost)" if math.isfinite(bits) and bits >= 0.5 else ""


def _kept(subject: Subject, step: Step, fmt: Format) -> str:
    """Return how many bits of a result are right, as the median of its elements."""
    exact, rounded = subject.exact[Ref(step.number)], subject.rounded[Ref(step.number)]
    wrong = ((rounded - exact).abs() / exact.abs()).nan_to_num(nan=0.0, posinf=1.0)
    bits = -math.log2(max(float(wrong.median()), fmt.unit_roundoff))
    kind = "the difference cancels and " if step.name.split(".")[1] in ("sub", "add", "rsub") else ""
    return f"{kind}keeps {max(0, round(bits))} of {fmt.precision} bits"
