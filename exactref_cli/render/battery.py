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
FAMILY = "values_"
FEWEST = 4  # rows that are put together
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
    for row in _together(rows):
        table.add_row(row.name, Text(row.outcome.value, _STYLES.get(row.outcome, "yellow")), Text(row.evidence))
    put(console, table, INDENT)


def _together(rows: Sequence[BatteryRow]) -> list[BatteryRow]:
    """Return the rows with those that say little in one: families that pass, what does not apply, what was skipped."""
    families = [row for row in rows if row.outcome is Outcome.PASS and row.name.startswith(FAMILY)]
    nothing = [row for row in rows if row.outcome is Outcome.NOT_APPLICABLE]
    skipped = [row for row in rows if row.outcome is Outcome.SKIPPED]
    found = list(rows)
    for group, name in (
        (families, f"{len(families)} families"),
        (nothing, f"{len(nothing)} items"),
        (skipped, f"{len(skipped)} items"),
    ):
        if len(group) >= FEWEST:
            place = found.index(group[0]) if group is families else len(found)
            found.insert(place, BatteryRow(name, group[0].outcome, _names(group)))
            found = [row for row in found if row not in group]
    return found


def _names(rows: Sequence[BatteryRow]) -> str:
    """Return the names of rows, and what they all found where that is the same; one reason to skip stands for all."""
    same = {row.evidence for row in rows}
    names = ", ".join(row.name.removeprefix(FAMILY) if row.outcome is Outcome.PASS else row.name for row in rows)
    if rows[0].outcome is Outcome.SKIPPED:
        return f"{names}: {rows[0].evidence}"
    return f"{names}: {same.pop()} each" if len(same) == 1 else names


def broken(rows: Sequence[BatteryRow]) -> bool:
    """Return True where an item failed or could not be decided."""
    return any(row.outcome in (Outcome.FAIL, Outcome.UNDECIDED) for row in rows)
