"""The table of the contract battery: one row per item, its evidence wrapped where there is no room."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactref_cli.render.console import count, put, room
from kernels_core.report import BatteryRow, Outcome

_STYLES = {Outcome.PASS: "green", Outcome.FAIL: "bold red", Outcome.NOT_APPLICABLE: "dim"}
INDENT = 2
_QUIET = (Outcome.PASS, Outcome.NOT_APPLICABLE)


def contract(console: Console, rows: Sequence[BatteryRow], *, brief: bool = False) -> None:
    """Print the table of one case; `brief` leaves out what passed or does not apply, and counts it.

    Args:
        console: to print on.
        rows: of the battery.
        brief: True where a violated tensor has the screen for itself.
    """
    if brief:
        told = [row for row in rows if row.outcome not in _QUIET]
        quiet = len(rows) - len(told)
        console.print(Text(f"  battery: {count(quiet, 'item')} without a finding"))
        rows = told
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", width=room(console) - INDENT)
    table.add_column("battery", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("evidence", ratio=1, overflow="fold")
    for row in rows:
        table.add_row(row.name, Text(row.outcome.value, _STYLES.get(row.outcome, "yellow")), Text(row.evidence))
    put(console, table, INDENT)


def broken(rows: Sequence[BatteryRow]) -> bool:
    """Return True where an item failed or could not be decided."""
    return any(row.outcome in (Outcome.FAIL, Outcome.UNDECIDED) for row in rows)
