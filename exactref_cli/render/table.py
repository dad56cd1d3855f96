"""The coverage table: one row per output and gradient."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from exactref_cli.render.console import number, sizes, style
from kernels_core.report import TensorReport, Verdict

_COUNTS = ("elements", "covered", "violated", "undecided", "unconstrained")


def coverage(rows: Sequence[TensorReport]) -> Table:
    """Return the coverage table of one case; the precision column only where the audit was run."""
    audited = any(row.precision for row in rows)
    table = plain("tensor", "shape", "dtype")
    for name in (*_COUNTS, "max error\n(ulp)", "bound\n(ulp)", "used"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("precision", "verdict") if audited else ("verdict",):
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, audited))
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
    cells += [row.precision] * audited
    empty = not row.elements and row.verdict is Verdict.COVERED
    words = (Verdict.NOTHING if empty else row.verdict).value  # nothing is never shown as covered
    return [*cells, Text(words, style(words))]
