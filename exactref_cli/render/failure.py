"""The failure screen: why one tensor is violated, and how to see it again."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactref_cli.render.console import count, exactly, folded, needs, number, put, room, style
from exactref_cli.render.table import plain
from kernels_core.blame.rounding import LOST
from kernels_core.report import Blame, Element, Failure, Report, TensorReport, Verdict

SHOWN = 5  # elements, worst first
_TOGETHER = 4  # elements of all violated tensors of a case, so that several still fit on one screen


MISSING = "the backward returned None"  # how the note of such a gradient starts


def show(console: Console, report: Report, row: TensorReport, repeat: str) -> None:
    """Print the failure screen of one violated row."""
    failure = row.failure
    if failure is None:
        return
    console.print(Text.assemble(f"\n  {row.name} is ", ("violated", style("violated")), f": {failure.pattern}"))
    for line in failure.diagnosis:
        console.print(Text(f"  {line}"))
    for line in _blame(report, row):
        console.print(Text(f"  {line}"))
    for line in _consistency(report, row):
        console.print(Text(folded(console, line)))
    for line in _hints(report, row):
        console.print(Text(folded(console, line)))
    failed = [other for other in report.tensors if other.failure is not None]
    shown = failure.elements[: SHOWN if len(failed) == 1 else max(1, _TOGETHER // len(failed))]
    if shown:
        console.print()
        _put_elements(console, shown, row.dtype)
    facts = list(_facts(report, row, failure, len(shown)))
    if len(failed) > 1:
        facts = ["; ".join(facts)]
    elif shown:
        console.print()
    for line in [*facts, *([f"repeat: {repeat}"] if repeat and row is failed[-1] else [])]:
        console.print(Text(f"  {line}"))


def _blame(report: Report, row: TensorReport) -> Iterator[str]:
    """Yield each line of the kernel that is to blame: verdict and place, the line itself, the reason."""
    for blame in row.failure.blame if row.failure is not None else ():
        shown_before = next(other for other in report.tensors if _blames(other, blame))
        if shown_before is not row:
            yield f"{blame.verdict}: {blame.place}, as for {shown_before.name}"
            continue
        callers = ", ".join(place.rpartition(":")[2] for place in blame.callers)
        where = f": {blame.place}" if blame.place else ""
        yield blame.verdict + where + (f", from line {callers}" if callers else "")
        yield from (f"    {part}" for part in (blame.text, blame.reason) if part)


def _consistency(report: Report, row: TensorReport) -> Iterator[str]:
    """Yield which arithmetic would cover the tensor, under the first of the tensors that it would cover."""
    for found in report.consistent:
        if row.name == found.tensors[0]:
            which = f"{' and '.join(found.tensors)}: " if len(found.tensors) > 1 else ""
            declared = f" (--profile {' or '.join(found.profiles)})" if found.profiles else ""
            yield f"{which}{found.text}{declared}"


def _hints(report: Report, row: TensorReport) -> Iterator[str]:
    """Yield what the user may have meant: an input without a gradient, a backward that reads what was stored."""
    if row.kind != "gradient" or row.failure is None:
        return
    if row.note.startswith(MISSING):
        name = row.name.removeprefix("grad_")
        others = [one.name for one in report.inputs if one.requires_grad and one.name != name]
        wrt = f"--wrt {','.join(others)}, or " if others else ""
        yield f"if {name} is not to be differentiated, say so: {wrt}requires_grad: false in a spec"
    outputs = [other for other in report.tensors if other.kind == "output"]
    lost = any(blame.verdict == LOST and _function_at(blame.place) == "forward" for blame in row.failure.blame)
    if lost and all(other.verdict is Verdict.COVERED for other in outputs):
        yield "if the backward is meant to read that rounded value, declare so: reference_backward (docs/specs.md)"


def _function_at(place: str) -> str:
    """Return the name of the innermost function around "file:line", "" where there is none or it cannot be read."""
    file, _, line = place.rpartition(":")
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        around = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.lineno <= int(line) <= _end(f)]
    except (OSError, SyntaxError, ValueError):
        return ""
    return max(around, key=lambda f: f.lineno).name if around else ""


def _end(function: ast.FunctionDef) -> int:
    return function.end_lineno or function.lineno


def _blames(row: TensorReport, blame: Blame) -> bool:
    known = row.failure.blame if row.failure is not None else ()
    return any((one.place, one.verdict) == (blame.place, blame.verdict) for one in known)


def _put_elements(console: Console, elements: Sequence[Element], dtype: str) -> None:
    """Print the elements as a table, or one under the other where a terminal has no room for it."""
    table = _elements(elements, dtype)
    if needs(console, table) <= room(console):
        put(console, table)
        return
    for element in elements:
        index, actual, interval, exact, outside, ratio = _cells(element, dtype)
        console.print(Text(f"  {index} actual {actual}, admissible {interval}"))
        console.print(Text(f"  {' ' * len(index)} exact {exact}, {outside} ulps outside, ratio {ratio}"))


def _elements(elements: Sequence[Element], dtype: str) -> Table:
    table = plain("index")
    for name in ("actual", "admissible interval", "exact value", "ulps outside", "actual/exact"):
        table.add_column(name, justify="right", no_wrap=True)
    for element in elements:
        table.add_row(*_cells(element, dtype))
    return table


def _cells(element: Element, dtype: str) -> Iterator[str]:
    yield str(list(element.index))
    yield exactly(element.actual, dtype)
    yield f"[{exactly(element.lower, dtype)}, {exactly(element.upper, dtype)}]"
    yield exactly(element.exact, "float64")
    yield number(element.ulps_outside)
    yield "-" if element.ratio is None else f"{element.ratio:.9g}"


def _facts(report: Report, row: TensorReport, failure: Failure, shown: int) -> Iterator[str]:
    more = row.violated - shown
    if shown and more > 0:
        yield f"and {count(more, 'more element')}"
    yield f"shape {list(row.shape)}, strides {list(failure.strides)}, {row.dtype}, seed {report.seed}"
