"""The exit codes, and which of several wins."""

from __future__ import annotations

from collections.abc import Iterable

from kernels_core.report import Verdict

COVERED = 0
VIOLATED = 1  # a violation is proved, or the kernel raised
USAGE = 2  # a usage or spec error
INTERNAL = 3  # a bug of ours
NOT_DECIDED = 4  # undecided, unconstrained, suspect, out of budget, device missing
NOTHING = 5  # nothing was checked
INTERRUPTED = 130  # ctrl-C, as shells count signals

_ORDER = (INTERNAL, VIOLATED, USAGE, NOT_DECIDED, NOTHING)  # worst first

_OF_VERDICT = {
    Verdict.COVERED: COVERED,
    Verdict.VIOLATED: VIOLATED,
    Verdict.RAISED: VIOLATED,
    Verdict.UNDECIDED: NOT_DECIDED,
    Verdict.UNCONSTRAINED: NOT_DECIDED,
    Verdict.SUSPECT: NOT_DECIDED,
    Verdict.NOTHING: NOTHING,
}


def of_verdict(verdict: Verdict) -> int:
    """Return the exit code of one verdict."""
    return _OF_VERDICT[verdict]


def worst(codes: Iterable[int]) -> int:
    """Return the code that wins: 3, 1, 2, 4, 5, then 0; 5 where there is none at all."""
    found = set(codes)
    for code in _ORDER:
        if code in found:
            return code
    return COVERED if found else NOTHING
