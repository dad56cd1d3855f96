"""Run cases and deliver the report where it was asked for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from exactref_cli import exits, run
from exactref_cli import reproduce as reproducer
from exactref_cli.render import case as screen
from exactref_cli.render import json, progress
from exactref_cli.render.console import on
from kernels_core.errors import UsageError


def deliver(
    cases: Sequence[run.Case], form: str, output: Path | None, debug: bool = False, reproduce: Path | None = None
) -> int:
    """Run the cases and return the exit code.

    Args:
        cases: to run.
        form: "table" or "json".
        output: the file of the report; then standard output has the summary line only.
        debug: print tracebacks of internal errors on standard error.
        reproduce: the folder that gets a reproducer of each violated case.

    Raises:
        UsageError: an unknown form, or a file that cannot be written.
    """
    if form not in ("table", "json"):
        raise UsageError(f"--format: wanted table or json, found {form!r}")
    _require_writable(output)
    streaming = form == "table" and output is None
    outcomes = _run(cases, streaming, debug)
    code = exits.worst(outcome.code for outcome in outcomes)
    if form == "json":
        _write(json.text(outcomes, code) + "\n", output)
    elif output is not None:
        _write_table(outcomes, output)
    if form == "table" or output is not None:
        sys.stdout.write(screen.summary(outcomes) + "\n")
    if reproduce is not None:
        _reproduce(outcomes, reproduce)
    return code


def _run(cases: Sequence[run.Case], streaming: bool, debug: bool) -> list[run.Outcome]:
    console, outcomes = on(), []
    with progress.bar(len(cases)) as bar:
        for case in cases:
            bar.starts(case.name)
            with contextlib.redirect_stdout(sys.stderr):  # what a kernel prints is no part of the report
                outcomes.append(run.run_case(case))
            with bar.finished():
                if streaming:
                    screen.show(console, outcomes[-1])
                if debug and outcomes[-1].details:
                    sys.stderr.write(outcomes[-1].details + "\n")
    return outcomes


def _reproduce(outcomes: Sequence[run.Outcome], folder: Path) -> None:
    for outcome in outcomes:
        with contextlib.redirect_stdout(sys.stderr):
            line = reproducer.write(outcome, folder)
        if line:
            sys.stderr.write(f"{outcome.case.name}: {line}\n")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


def _write_table(outcomes: Sequence[run.Outcome], output: Path) -> None:
    with output.open("w", encoding="utf-8") as stream:
        console = on(stream)
        for outcome in outcomes:
            screen.show(console, outcome)
        stream.write(screen.summary(outcomes) + "\n")


def _require_writable(output: Path | None) -> None:
    """Fail before an hour of work rather than after it."""
    if output is None:
        return
    try:
        output.touch()
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be written: {error.strerror}") from error
