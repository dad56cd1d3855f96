"""What `exactref list` shows: references, operations, profiles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from exactref_cli.render.console import count, put, room
from exactref_cli.render.table import plain

Listing = Mapping[str, Sequence[Mapping[str, str]]]


def show(console: Console, listing: Listing) -> None:
    """Print the three lists."""
    for kind in ("references", "profiles"):
        table = plain(*listing[kind][0])
        table.columns[-1].no_wrap = False
        for entry in listing[kind]:
            table.add_row(*entry.values())
        put(console, table, 0, width=room(console))
        console.print()
    operations = [entry["operation"] for entry in listing["operations"]]
    console.print(Text(f"{count(len(operations), 'operation')} with rules"), style="bold")
    put(
        console, Columns([Text(name) for name in operations], padding=(0, 2), column_first=True), 0, width=room(console)
    )


def as_json(listing: Listing) -> str:
    """Return the three lists as JSON."""
    whole: dict[str, Any] = {"version": 1, **listing}
    return json.dumps(whole, indent=2)
