"""Why an element is wrong: hypotheses, each tested against the certified intervals.

One record per hypothesis in the module of its family; evidence.py holds the one test that all of them take. Families
run from the cheapest to the dearest, and a family that explains the failure is the last one asked.
"""

from __future__ import annotations

from kernels_core.diagnosis import blocks, calls, layouts, masks, precision, sums, upstream, values, variants
from kernels_core.diagnosis.evidence import Evidence, Hypothesis, Setting, explains

__all__ = ["FAMILIES", "Evidence", "Hypothesis", "Setting", "diagnose"]

FAMILIES: tuple[tuple[Hypothesis, ...], ...] = (
    blocks.UNWRITTEN,
    *((hypothesis,) for hypothesis in values.HYPOTHESES),
    layouts.HYPOTHESES,
    precision.ROUNDED,
    upstream.HYPOTHESES,
    masks.HYPOTHESES,
    variants.HYPOTHESES,
    sums.HYPOTHESES,
    blocks.UNREAD,
    precision.INPUTS,
    calls.HYPOTHESES,
)
SHOWN = 2
CUT_SHORT = "diagnosis cut short: not every hypothesis was tested in the time that it may take"


def diagnose(evidence: Evidence) -> tuple[str, ...]:
    """Return a line for each hypothesis that explains every failing element, at most two; empty where none does."""
    if not evidence.result.enclosure.floating:
        return ()
    setting = evidence.setting
    for family in FAMILIES:
        found = [line for hypothesis in family for line in _tested(hypothesis, evidence)]
        if found:
            return tuple(found[:SHOWN])
    return (CUT_SHORT,) if setting is not None and setting.cut_short else ()


def _tested(hypothesis: Hypothesis, evidence: Evidence) -> list[str]:
    for candidate in hypothesis.candidates(evidence):
        if explains(candidate, evidence):
            return [candidate.sentence.format(count=evidence.count)]
    return []
