"""One case on the screen: heading, table, notes, failures; and the summary line of many."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from exactref_cli.render import failure, sensitivity
from exactref_cli.render.battery import broken, contract
from exactref_cli.render.console import count, folded, put, style
from exactref_cli.render.table import coverage
from exactref_cli.run import Outcome
from kernels_core.report import Outcome as Fate
from kernels_core.report import Raised, Report, Verdict

NAMED = 3  # failed battery items that the summary line names


def show(console: Console, outcome: Outcome) -> None:
    """Print one outcome."""
    console.print(Text.assemble(outcome.case.name, ": ", (outcome.words, style(outcome.words))))
    if outcome.report is None:
        console.print(Text(_indented(outcome.error)))
    else:
        _report(console, outcome.report, outcome.case.repeat, outcome.insensitive)
    console.print()


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the summary line: "3 cases: 2 covered, 1 violated; 4096 of 4608 elements covered; 0.4 s"."""
    if not outcomes:
        return "0 cases: nothing checked"
    words = collections.Counter(outcome.words for outcome in outcomes)
    reports = [outcome.report for outcome in outcomes if outcome.report is not None]
    rows = [row for report in reports for row in report.tensors]
    covered, elements = sum(row.covered for row in rows), sum(row.elements for row in rows)
    found = ", ".join(
        count(number, word) if word.endswith("error") else f"{number} {word}" for word, number in words.items()
    )
    seconds = sum(report.seconds for report in reports)
    failed = [row.name for report in reports for row in report.battery if row.outcome is Fate.FAIL]
    parts = [f"{count(len(outcomes), 'case')}: {found}", f"{covered} of {count(elements, 'element')} covered"]
    parts += [f"{count(len(failed), 'battery item')} failed"] * bool(failed)
    if failed and len(set(failed)) <= NAMED:
        parts[-1] += f" ({', '.join(dict.fromkeys(failed))})"
    skipped = sum(row.outcome is Fate.SKIPPED for report in reports for row in report.battery)
    parts += [f"{count(skipped, 'battery item')} skipped"] * bool(skipped)
    return "; ".join([*parts, f"{seconds:.1f} s"])


def _report(console: Console, report: Report, repeat: str, insensitive: Sequence[str]) -> None:
    for line in _heading(report):
        console.print(Text(folded(console, line)))
    if report.tensors:
        console.print()
        put(console, coverage(console, report.tensors))
    if report.battery:
        console.print()
        contract(console, report.battery, brief=any(row.failure for row in report.tensors))
    for place, line in enumerate(_remarks(report, insensitive)):
        console.print(Text(("" if place else "\n") + folded(console, line)))
    if report.raised is not None:
        _raised(console, report.raised, repeat)
    for row in report.tensors:
        failure.show(console, report, row, repeat)
    if not any(row.failure for row in report.tensors) and broken(report.battery):
        _contract_alone(console, report, repeat)


def _contract_alone(console: Console, report: Report, repeat: str) -> None:
    """Say that the values are right where only the contract is broken, and how to leave out what does not matter."""
    failed = [row.name for row in report.battery if row.outcome is Fate.FAIL]
    if failed and report.tensors and all(row.verdict is Verdict.COVERED for row in report.tensors):
        way = f"battery: [{', '.join(f'-{name}' for name in failed)}]"
        if repeat.startswith("exactref gradcheck"):
            way = " ".join(f"--without {name}" for name in failed)
        console.print(Text(f"\n  outputs and gradients are covered; what failed is {', '.join(failed)}"))
        console.print(Text(f"  if your use does not need that: {way}"))
    if repeat:
        console.print(Text(f"\n  repeat: {repeat}"))


def _heading(report: Report) -> Iterator[str]:
    yield f"{report.function} against {report.reference}"
    yield "inputs: " + ", ".join(f"{given.name} {given.text}" for given in report.inputs)
    yield from report.notes
    if report.arithmetic.reason and report.profile != "ieee":
        yield f"profile {report.arithmetic.reason}"
    yield f"seed {report.seed}, {report.granted}, device {report.device}, {report.seconds:.2f} s"


def _remarks(report: Report, insensitive: Sequence[str]) -> Iterator[str]:
    for row in report.tensors:
        if row.kinks:
            yield f"{row.name}: {count(row.kinks, 'element')} at kinks, inside the subdifferential"
        if row.note:
            yield f"{row.name}: {row.note}"
    yield from sensitivity.lines(report.tensors)
    yield from insensitive


def _raised(console: Console, raised: Raised, repeat: str) -> None:
    console.print(Text.assemble("  ", (f"{raised.phase} raised ", style("raised")), raised.message))
    if raised.frames:
        console.print(Text(_indented(raised.frames, "    ")))
    if repeat:
        console.print(Text(f"  repeat: {repeat}"))


def _indented(text: str, by: str = "  ") -> str:
    return "\n".join(by + line for line in text.splitlines())
