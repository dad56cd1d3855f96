"""One item of the contract battery: what it is called, what it looks at, and how it is run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from kernels_core.battery.subject import Subject
from kernels_core.report import Outcome


class Finding(NamedTuple):
    """What an item found: the outcome and one line of evidence."""

    outcome: Outcome
    evidence: str


@dataclasses.dataclass(frozen=True)
class Item:
    """An item of the battery.

    Attributes:
        name: as users select it.
        looks_at: one line for `docs/checks.md` and lists: what must hold.
        run: runs the kernel as often as it needs and says what it found. A KernelRaisedError that it lets through
            is a failure of the item.
    """

    name: str
    looks_at: str
    run: Callable[[Subject], Finding]


def not_applicable(why: str) -> Finding:
    """Return the finding of an item that has nothing to look at."""
    return Finding(Outcome.NOT_APPLICABLE, why)
