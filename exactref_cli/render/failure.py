"""The failure screen: why one tensor is violated, and how to see it again."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactref_cli.render.console import count, exactly, needs, number, put, room, style
from exactref_cli.render.table import plain
from kernels_core.report import Element, Failure, Report, TensorReport

SHOWN = 5  # elements, worst first


def show(console: Console, report: Report, row: TensorReport, repeat: str) -> None:
    """Print the failure screen of one violated row."""
    failure = row.failure
    if failure is None:
        return
    console.print(Text.assemble(f"\n  {row.name} is ", ("violated", style("violated")), f": {failure.pattern}"))
    for line in failure.diagnosis:
        console.print(Text(f"  {line}"))
    if failure.elements:
        console.print()
        _put_elements(console, failure, row.dtype)
        console.print()
    for line in _facts(report, row, failure, repeat):
        console.print(Text(f"  {line}"))


def _put_elements(console: Console, failure: Failure, dtype: str) -> None:
    """Print the elements as a table, or one under the other where a terminal has no room for it."""
    table = _elements(failure, dtype)
    if needs(console, table) <= room(console):
        put(console, table)
        return
    for element in failure.elements[:SHOWN]:
        index, actual, interval, exact, outside, ratio = _cells(element, dtype)
        console.print(Text(f"  {index} actual {actual}, admissible {interval}"))
        console.print(Text(f"  {' ' * len(index)} exact {exact}, {outside} ulps outside, ratio {ratio}"))


def _elements(failure: Failure, dtype: str) -> Table:
    table = plain("index")
    for name in ("actual", "admissible interval", "exact value", "ulps outside", "actual/exact"):
        table.add_column(name, justify="right", no_wrap=True)
    for element in failure.elements[:SHOWN]:
        table.add_row(*_cells(element, dtype))
    return table


def _cells(element: Element, dtype: str) -> Iterator[str]:
    yield str(list(element.index))
    yield exactly(element.actual, dtype)
    yield f"[{exactly(element.lower, dtype)}, {exactly(element.upper, dtype)}]"
    yield exactly(element.exact, "float64")
    yield number(element.ulps_outside)
    yield "-" if element.ratio is None else f"{element.ratio:.9g}"


def _facts(report: Report, row: TensorReport, failure: Failure, repeat: str) -> Iterator[str]:
    more = row.violated - min(SHOWN, len(failure.elements))
    if failure.elements and more > 0:
        yield f"and {count(more, 'more element')}"
    yield f"shape {list(row.shape)}, strides {list(failure.strides)}, {row.dtype}, seed {report.seed}"
    if repeat:
        yield f"repeat: {repeat}"
