"""Which line of the kernel makes a tensor wrong, where the kernel is made of PyTorch operations.

Its own forward and backward are traced with their source lines and replayed in float64, once without any rounding and
once with the rounding of each step's format. The first replay tells a wrong formula from lost precision; what to blame
is then found by counterfactuals, each judged by the certified intervals.
"""

from __future__ import annotations

import linecache
import os

from kernels_core.blame.formula import WRONG, wrong_formula
from kernels_core.blame.nans import NAN, first_nan
from kernels_core.blame.own import own_program
from kernels_core.blame.replay import CannotReplayError
from kernels_core.blame.rounding import LOST, lost_precision
from kernels_core.blame.subject import Subject
from kernels_core.diagnosis.evidence import Evidence, Setting
from kernels_core.program import Step
from kernels_core.report import Blame

__all__ = ["VERDICTS", "blame"]

VERDICTS = (WRONG, LOST, NAN)
CUT_SHORT = "the search for the line was cut short"
TOO_LONG = "no line was searched for in a program of {} operations (at most {}): a shorter sequence or loop shows it"
_LARGEST = 1 << 22  # elements of all results together: a larger program is not replayed
_LONGEST = 4096  # operations of the reference and its derivative: those of an unrolled loop take milliseconds each
_REPRODUCED = 0.9  # of the failing elements must fail in the replay too


def blame(evidence: Evidence) -> tuple[Blame, ...]:
    """Return the lines that make a tensor wrong, the most telling first; empty where nothing can be said."""
    setting = evidence.setting
    if setting is None or not evidence.result.enclosure.floating:
        return ()
    if (length := _length(setting)) > _LONGEST:
        return (Blame("", "", TOO_LONG.format(length, _LONGEST), ""),)
    subject = _subject(setting)
    if subject is None or evidence.result.name not in subject.rows:
        return ()
    try:
        verdict, found = _judged(subject, evidence)
    except CannotReplayError:
        return ()
    if not found and subject.cut_short:
        return (Blame("", "", CUT_SHORT, ""),)
    return tuple(_blamed(step, verdict, reason) for step, reason in found)


def _length(setting: Setting) -> int:
    """Return the number of operations of the reference; the kernel's own are about as many, and not traced yet."""
    check = setting.check
    return len((check.joint if check.wrt else check.forward).steps)


def _subject(setting: Setting) -> Subject | None:
    if "own program" not in setting.kept:
        setting.kept["own program"] = _made(setting)
    kept: Subject | None = setting.kept["own program"]
    return kept


def _made(setting: Setting) -> Subject | None:
    if setting.function is None:
        return None
    program = own_program(setting.function, setting.check, setting.upstream)
    if program is None:
        return None
    size = sum(meta.numel for step in program.steps for meta in step.metas if meta is not None)
    return Subject(program, setting) if size <= _LARGEST else None


def _judged(subject: Subject, evidence: Evidence) -> tuple[str, list[tuple[Step, str]]]:
    name, failing = evidence.result.name, evidence.failing
    ref = subject.rows[name]
    if subject.exact[ref].shape != failing.shape:
        return "", []  # a gradient of another shape, which the engine sums
    if bool(evidence.value[failing].isnan().all()):
        return NAN, first_nan(subject, evidence)
    outside = subject.outside(name, subject.rounded[ref])[failing]
    if float(outside.float().mean()) < _REPRODUCED:
        return "", []  # the operations one by one do not show it: what happens between calls, or in memory
    if bool(subject.outside(name, subject.exact[ref])[failing].any()):
        return WRONG, wrong_formula(subject, name)
    return LOST, lost_precision(subject, evidence)


def _blamed(step: Step, verdict: str, reason: str) -> Blame:
    place, *frames = step.source.split("\n")
    file, _, number = place.rpartition(":")
    callers = tuple(dict.fromkeys(_shown(c) for c in frames if c != place and c.rpartition(":")[0] == file))
    text = linecache.getline(file, int(number)).strip() if number.isdecimal() else ""
    return Blame(_shown(place), text, verdict, reason, callers)


def _shown(place: str) -> str:
    """Return the place relative to the working directory where it lies below it."""
    file, _, number = place.rpartition(":")
    near = os.path.relpath(file)
    return f"{file if near.startswith(os.pardir) else near}:{number}"
