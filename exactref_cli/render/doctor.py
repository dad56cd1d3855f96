"""What the doctor measured, on the screen and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactref_cli.render.console import count, needs, put, room
from exactref_cli.render.json import plain
from exactref_cli.render.table import plain as table_of
from kernels_core.doctor import Measurement

_DISPENSABLE = ("tried", "where")  # what a narrow terminal goes without, in this order
INDENT = 2
_NUMBERS = ("worst", "limit", "tried")


def show(console: Console, found: Sequence[Measurement]) -> None:
    """Print what was measured, and every assumption that does not hold once more in words."""
    columns = ["assumption", "worst", "limit", "verdict", "tried", "where"]
    for name in _DISPENSABLE:
        if needs(console, _table(found, columns)) > room(console):
            columns.remove(name)
    table = _table(found, columns)
    if needs(console, table) > room(console):  # the words of an assumption go on below
        table.columns[0].no_wrap, table.width = False, room(console) - INDENT
    put(console, table, INDENT)
    console.print()
    for one in (one for one in found if not one.holds):
        worst = _number(one, one.worst)
        console.print(Text(f"  {one.name}: " + (f"{worst} at " if worst else "") + one.where))
    console.print(Text(summary(found)))


def summary(found: Sequence[Measurement]) -> str:
    """Return "41 assumptions hold on this machine", or how many do not and what follows."""
    failed = sum(not one.holds for one in found)
    if failed:
        return f"{failed} of {count(len(found), 'assumption')} do not hold on this machine: nothing is certified here"
    return f"{count(len(found), 'assumption')} hold on this machine"


def _table(found: Sequence[Measurement], columns: Sequence[str]) -> Table:
    table = table_of()
    for name in columns:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for one in found:
        cells: dict[str, str | Text] = {"assumption": one.name, "tried": str(one.tried), "where": one.where}
        cells |= {"worst": _number(one, one.worst), "limit": _number(one, one.limit)}
        cells["verdict"] = Text("holds", "green") if one.holds else Text("does not hold", "bold red")
        table.add_row(*(cells[name] for name in columns))
    return table


def _number(one: Measurement, value: float) -> str:
    return "" if one.kind == "arithmetic" else f"{value:.3g} {one.unit}".strip()


def as_json(found: Sequence[Measurement]) -> str:
    """Return what was measured as JSON."""
    rows = [{**plain(one), "holds": one.holds} for one in found]
    return json.dumps({"version": 1, "summary": summary(found), "assumptions": rows}, indent=2, allow_nan=False)
