"""The table of mutation scores: one line per case, followed by the mutants that it missed, then the totals."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

_COUNTED = ("real", "caught", "legal", "close", "checked", "gradcheck")


@dataclasses.dataclass(frozen=True)
class Row:
    """The scores of one case; `real` are the mutants that are faults at all, `checked` those that gradcheck got."""

    title: str
    sizes: Mapping[str, Sequence[int]]
    mutants: int = 0
    real: int = 0
    caught: int = 0
    suspect: int = 0
    legal: int = 0
    close: int = 0
    checked: int = 0
    gradcheck: int = 0
    missed: Sequence[str] = ()
    alarm: str = ""


def show(rows: Iterable[Row]) -> int:
    """Print the table; return the number of undamaged kernels that were not covered."""
    totals: collections.Counter[str] = collections.Counter()
    entries: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    alarms = 0
    _line("case", "mutants", "equiv.", "legal", "caught", "suspect", "share", "close", "gradcheck")
    for row in rows:
        if row.alarm:
            alarms += 1
            print(f"FALSE ALARM {row.title}: {row.alarm}", flush=True)
            continue
        counts = {name: getattr(row, name) for name in _COUNTED}
        totals.update(counts)
        entries[row.title.rpartition(" ")[0]].update(counts)
        _case(row.title, row.mutants, row.suspect, counts)
        for mutant in row.missed:
            print(f"    missed: {mutant}", flush=True)
    _case("all", totals["real"] + totals["legal"], 0, totals)
    _entries(entries)
    return alarms


def _entries(entries: Mapping[str, Mapping[str, int]]) -> None:
    """Print how many references have 99 % of their mutants caught, over their formats."""
    shares = {name: found["caught"] / max(1, found["real"]) for name, found in entries.items()}
    below = [f"{name} {share:.1%}" for name, share in shares.items() if share < 0.99]
    print(f"{len(shares)} references, {len(shares) - len(below)} with 99 % or more of their mutants caught")
    if below:
        print("below: " + ", ".join(below))


def _case(case: str, mutants: int, suspect: int, found: Mapping[str, int]) -> None:
    real = max(1, found["real"])
    checked = f"{found['gradcheck'] / found['checked']:.1%}" if found["checked"] else "-"
    _line(case, mutants, mutants - found["real"] - found["legal"], found["legal"], found["caught"], suspect,
          f"{found['caught'] / real:.1%}", f"{found['close'] / real:.1%}", checked)  # fmt: skip


def _line(case: object, *cells: object) -> None:
    print(f"{case!s:<28}" + "".join(f"{cell!s:>10}" for cell in cells), flush=True)
