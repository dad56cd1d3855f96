"""The log of a sweep over PyTorch's operator database, a line of JSON for each entry, and what the lines add up to."""

from __future__ import annotations

import collections
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

Entry = dict[str, Any]
# Verdicts of an entry, the worst of its samples first.
ORDER = (
    "violated",
    "error",
    "timeout",
    "rounded",
    "unsupported",
    "random",
    "untraceable",
    "undecided",
    "unconstrained",
    "certified",
    "not applicable",
)


def read_log(log: pathlib.Path | None) -> list[Entry]:
    """Return the entries of a log, the last line of each; none where there is no such file yet."""
    if log is None or not log.exists():
        return []
    lines = map(json.loads, log.read_text().splitlines())
    return list({(entry["dtype"], entry["name"]): entry for entry in lines}.values())


def append(log: pathlib.Path | None, entry: Entry) -> None:
    """Add an entry's line to the log."""
    if log is not None:
        with log.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def line(entry: Entry) -> str:
    """Return what the sweep prints of an entry: verdict, certified samples of all that it has, seconds, reasons."""
    of = f"{entry['samples'].get('certified', 0)}/{sum(entry['samples'].values()) + entry.get('left', 0)}"
    note = "; ".join(dict.fromkeys(entry["notes"]))[:400]
    return f"{entry['verdict']:14} {entry['name']:45} {of:9} {entry['seconds']:5} s  {note}\n"


def complete(entry: Mapping[str, Any]) -> bool:
    """Return True where every sample that the entry has was tried and certified."""
    return set(entry["samples"]) == {"certified"} and not entry.get("left")


def missing(found: Iterable[Entry]) -> collections.Counter[str]:
    """Return how many entries each operation without a rule keeps from being certified."""
    counts: collections.Counter[str] = collections.Counter()
    for entry in found:
        if entry["verdict"] == "unsupported":
            counts.update({note.split(": ", 1)[-1] for note in entry["notes"]})
    return counts


def summary(found: list[Entry]) -> str:
    """Return the closing lines: entries by verdict, those certified in every sample, operations without a rule."""
    totals = collections.Counter(entry["verdict"] for entry in found)
    tried = sum(sum(entry["samples"].values()) for entry in found)
    left = sum(entry.get("left", 0) for entry in found)
    return (
        f"{len(found)} entries: {', '.join(f'{totals[v]} {v}' for v in reversed(ORDER) if totals[v])}; "
        f"{sum(entry['seconds'] for entry in found):.0f} s\n"
        f"{sum(map(complete, found))} entries certified in every sample that they have; "
        f"{sum(entry['samples'].get('certified', 0) for entry in found)} of {tried} samples tried, {left} not tried\n"
        f"operations without a rule: {dict(missing(found).most_common())}\n"
    )
