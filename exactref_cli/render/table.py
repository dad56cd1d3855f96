"""The coverage table: one row per output and gradient."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactref_cli.render.console import needs, number, room, sizes, style
from kernels_core.report import Precision, TensorReport, Verdict

_COUNTS = ("elements", "covered", "violated", "undecided", "unconstrained")
_MEASURED = ("max error\n(ulp)", "bound\n(ulp)", "used")
_PRECISION = "precision\n(bits lost)"

# What a narrow terminal goes without, in this order: counts that are all zero, then what other columns tell as well.
_DISPENSABLE = ("unconstrained", "undecided", "violated", "elements", "bound\n(ulp)", "dtype", "used")


def coverage(console: Console, rows: Sequence[TensorReport]) -> Table:
    """Return the coverage table of one case, without the columns that a narrow terminal has no room for."""
    left_out: set[str] = set()
    table = _table(rows, left_out)
    for name in _DISPENSABLE:
        if needs(console, table) <= room(console):
            break
        if name not in _COUNTS[2:] or not any(getattr(row, name) for row in rows):
            left_out.add(name)
            table = _table(rows, left_out)
    return table


def _table(rows: Sequence[TensorReport], left_out: Collection[str]) -> Table:
    """Return the table; the precision column only where the audit was run."""
    audited = any(row.precision is not None for row in rows)
    names = ["tensor", "shape", "dtype", *_COUNTS, *_MEASURED, *[_PRECISION] * audited, "verdict"]
    numbers = (*_COUNTS, *_MEASURED, _PRECISION)
    kept = [name for name in names if name not in left_out]
    table = plain()
    for name in kept:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for row in rows:
        cells = dict(zip(names, _cells(row, audited), strict=True))
        table.add_row(*(cells[name] for name in kept))
    return table


def plain(*columns: str) -> Table:
    """Return a table without lines, two spaces between its columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _cells(row: TensorReport, audited: bool) -> list[str | Text]:
    cells: list[str | Text] = [row.name, sizes(row.shape), row.dtype]
    cells += [str(getattr(row, name)) for name in _COUNTS]
    cells += [number(row.max_error_ulp), number(row.bound_ulp), number(row.used)]
    cells += [_lost(row.precision)] * audited
    empty = not row.elements and row.verdict is Verdict.COVERED
    words = (Verdict.NOTHING if empty else row.verdict).value  # nothing is never shown as covered
    return [*cells, Text(words, style(words))]


def _lost(precision: Precision | None) -> str:
    if precision is None or math.isnan(precision.bits_lost):
        return "-"
    return "exact" if precision.rms == 0 else f"{precision.bits_lost + 0.0:.1f}".replace("-0.0", "0.0")
