"""What became of the mutants, as plain data."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


class Fate(str, enum.Enum):
    """What a check makes of one mutant; the value is the word that users see."""

    VIOLATED = "violated"
    SUSPECT = "suspect"
    RAISED = "raised"
    EQUIVALENT = "equivalent"
    LEGAL = "legal"
    MISSED = "missed"

    def __str__(self) -> str:
        """Return the word that users see."""
        return self.value

    @property
    def caught(self) -> bool:
        """True where the case fails."""
        return self in (Fate.VIOLATED, Fate.SUSPECT, Fate.RAISED)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One planted fault.

    Attributes:
        kind: of the fault, "sign flipped".
        place: "result grad_A" or "operation 7, aten.mm.default".
        fate: what a check makes of it.
        reason: why it is equivalent or legal, what it raised, or how large a missed one is.
        damaged: outputs and gradients of the mutant by name; not reported.
    """

    kind: str
    place: str
    fate: Fate
    reason: str = ""
    damaged: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Score:
    """All mutants of one case."""

    mutants: tuple[Mutant, ...]

    def count(self, *fates: Fate) -> int:
        """Return how many mutants have one of these fates."""
        return sum(mutant.fate in fates for mutant in self.mutants)

    @property
    def caught(self) -> int:
        """Number of mutants that fail the case."""
        return sum(mutant.fate.caught for mutant in self.mutants)

    @property
    def counted(self) -> int:
        """Number of mutants that a check could catch: all but the equivalent and the legal ones."""
        return len(self.mutants) - self.count(Fate.EQUIVALENT, Fate.LEGAL)

    @property
    def missed(self) -> tuple[Mutant, ...]:
        """The mutants that the case passes."""
        return tuple(mutant for mutant in self.mutants if mutant.fate is Fate.MISSED)
