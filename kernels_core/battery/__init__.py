"""The contract battery: what must hold of a Function beside its values at one friendly call.

Every item is one record, registered here, in a file for its family; `run` runs those that are asked for and returns a
row for each. Values are judged by the intervals of the plain comparison, never by a tolerance.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import torch

from kernels_core.battery import (
    arguments,
    batching,
    buffers,
    differentiable,
    forward_mode,
    frozen,
    global_state,
    ignored,
    interleaved,
    layouts,
    magnitudes,
    memory,
    modes,
    mutation,
    raw,
    repeats,
    second_order,
    sharing,
    sizes,
    tied,
    upstream,
    values,
)
from kernels_core.battery.item import Finding, Item
from kernels_core.battery.subject import Settings, Size, Subject
from kernels_core.errors import UsageError, nearest
from kernels_core.kernel.call import KernelRaisedError
from kernels_core.report import BatteryRow, Outcome

__all__ = ["ITEMS", "Settings", "Size", "Subject", "run", "select"]

# What the battery may take in plain checks, and in any case but for families of values. Both of CPU time: other
# programs on the machine decide nothing. An item takes one to three plain checks, so none is begun beyond 22.
COST_LIMIT = 22.0
FREE_SECONDS = 5.0

_REGISTERED: tuple[Item, ...] = (
    *layouts.ITEMS,
    *frozen.ITEMS,
    *upstream.ITEMS,
    *magnitudes.ITEMS,
    *differentiable.ITEMS,
    *raw.ITEMS,
    *sharing.ITEMS,
    *mutation.ITEMS,
    *memory.ITEMS,
    *repeats.ITEMS,
    *interleaved.ITEMS,
    *second_order.ITEMS,
    *forward_mode.ITEMS,
    *batching.ITEMS,
    *tied.ITEMS,
    *values.ITEMS,
    *sizes.ITEMS,
    *arguments.ITEMS,
    *ignored.ITEMS,
    *buffers.ITEMS,
    *modes.ITEMS,
    *global_state.ITEMS,
)

ITEMS: dict[str, Item] = {item.name: item for item in _REGISTERED}


def select(asked: str | Sequence[str]) -> tuple[Item, ...]:
    """Return the items that are asked for, in their own order.

    Args:
        asked: "all", "none", or names; "values" for all families; "-name" leaves one out, of all where none is named.

    Raises:
        UsageError: no item has such a name.
    """
    names = [asked] if isinstance(asked, str) else list(asked)
    out = _known(name[1:] for name in names if name.startswith("-"))
    asked_for = [name for name in names if not name.startswith("-")]
    kept = _known(asked_for or (["all"] if out else []))
    return tuple(item for name, item in ITEMS.items() if name in kept - out)


def _known(names: Iterable[str]) -> set[str]:
    """Return the names of the items that these stand for."""
    groups = {"all": set(ITEMS), "none": set(), "values": {name for name in ITEMS if name.startswith("values_")}}
    found: set[str] = set()
    for name in names:
        if name not in ITEMS and name not in groups:
            known = f"known: {', '.join(groups)}, {', '.join(ITEMS)}"
            raise UsageError(f"no battery item is called {name!r}{nearest(str(name), ITEMS)}\n{known}")
        found |= groups.get(name, {name})
    return found


def run(subject: Subject, items: Sequence[Item], plain_seconds: float) -> tuple[BatteryRow, ...]:
    """Run items and return their rows; the random state is left as it was.

    Args:
        subject: the kernel after its plain comparison.
        items: to run.
        plain_seconds: of CPU time that the plain comparison took, for the limit on the cost.
    """
    rows: list[BatteryRow] = []
    start, limit = time.process_time(), COST_LIMIT * plain_seconds
    for item in items:
        begun, taken = time.monotonic(), time.process_time() - start
        if taken > limit and (item.name.startswith("values_") or taken > FREE_SECONDS):
            why = f"the battery has taken {taken:.0f} s of CPU time, {taken / plain_seconds:.0f} times the plain check"
            rows.append(BatteryRow(item.name, Outcome.SKIPPED, why))
            continue
        outcome, evidence = _run(item, subject)
        rows.append(BatteryRow(item.name, outcome, evidence, time.monotonic() - begun))
    return tuple(rows)


def _run(item: Item, subject: Subject) -> Finding:
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            return item.run(subject)
    except KernelRaisedError as error:
        first = (error.raised.message.strip().splitlines() or [""])[0]
        return Finding(Outcome.FAIL, f"{error.raised.phase} raised {first}")
