"""The mutation score on the screen, and as JSON."""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from exactref_cli.render.console import count, on, put
from exactref_cli.render.table import plain
from exactref_cli.run import Case
from kernels_core.power.score import Fate, Mutant, Score

SHOWN = 20  # missed mutants


_NOT_CAUGHT = (Fate.EQUIVALENT, Fate.LEGAL, Fate.MISSED)


def show(found: Sequence[tuple[Case, Score]]) -> None:
    """Print the score of every case."""
    console = on()
    for case, score in found:
        _show(console, case, score)


def summary(score: Score) -> str:
    """Return "118 of 118 mutants caught (2 suspect, 3 equivalent)"."""
    words = [
        f"{number} {fate.value}"
        for fate in (Fate.SUSPECT, Fate.EQUIVALENT, Fate.LEGAL)
        if (number := score.count(fate))
    ]
    more = f" ({', '.join(words)})" if words else ""
    return f"{score.caught} of {count(score.counted, 'mutant')} caught{more}"


def _show(console: Console, case: Case, score: Score) -> None:
    console.print(Text(f"{case.name}: {summary(score)}"))
    kinds = collections.defaultdict[str, list[Mutant]](list)
    for mutant in score.mutants:
        kinds[mutant.kind].append(mutant)
    table = plain("fault")
    for name in ("planted", "caught", "equivalent", "legal", "missed"):
        table.add_column(name, justify="right", no_wrap=True)
    for kind, mutants in kinds.items():
        caught = sum(mutant.fate.caught for mutant in mutants)
        others = [sum(mutant.fate is fate for mutant in mutants) for fate in _NOT_CAUGHT]
        table.add_row(kind, *map(str, (len(mutants), caught, *others)))
    put(console, table)
    for mutant in score.missed[:SHOWN]:
        console.print(Text(f"  missed: {mutant.kind} in {mutant.place}: {mutant.reason}"))
    if len(score.missed) > SHOWN:
        console.print(Text(f"  and {len(score.missed) - SHOWN} more"))
    console.print()


def print_json(found: Sequence[tuple[Case, Score]]) -> None:
    """Print the score of every case as JSON."""
    whole = {"version": 1, "cases": [_plain(case, score) for case, score in found]}
    sys.stdout.write(json.dumps(whole, indent=2) + "\n")


def _plain(case: Case, score: Score) -> dict[str, object]:
    mutants = [{"kind": m.kind, "place": m.place, "fate": m.fate.value, "reason": m.reason} for m in score.mutants]
    return {"name": case.name, "caught": score.caught, "counted": score.counted, "mutants": mutants}
