"""The whole verification of one case."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kernels_core.report.tensors import TensorReport
from kernels_core.report.verdicts import Outcome, Verdict


@dataclasses.dataclass(frozen=True)
class InputReport:
    """One input as it was used: name, "float32[16, 32]" like text for tensors or repr for plain values."""

    name: str
    text: str
    requires_grad: bool


@dataclasses.dataclass(frozen=True)
class Raised:
    """The kernel raised: the phase ("forward" or "backward"), the message and the user's frames."""

    phase: str
    message: str
    frames: str


@dataclasses.dataclass(frozen=True)
class BatteryRow:
    """One row of the battery's table.

    Attributes:
        name: of the item, as `battery:` and `--battery` take it.
        outcome: see `Outcome`.
        evidence: one line: what was run, or what went wrong, with the first wrong element.
        seconds: that the item took.
    """

    name: str
    outcome: Outcome
    evidence: str
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """What arithmetic the kernel was granted.

    Attributes:
        name: of the profile.
        knobs: those that are set, by name.
        reason: why this profile, where `auto` picked it; "" where somebody named it.
        bound: "worst-case" or "probabilistic".
        failure: probability that some grant of the run does not hold, None for a worst-case bound.
    """

    name: str = "ieee"
    knobs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reason: str = ""
    bound: str = "worst-case"
    failure: float | None = None


@dataclasses.dataclass(frozen=True)
class Consistency:
    """The least generous arithmetic that would cover violated tensors.

    Attributes:
        tensors: by name.
        profiles: as specs and commands write them; several where none grants less than the others, () for none.
        text: "consistent with tf32 inputs", "consistent with none of the arithmetic profiles", or why none was tried.
        decided: False where not every profile was tried.
    """

    tensors: tuple[str, ...]
    profiles: tuple[str, ...]
    text: str
    decided: bool = True


@dataclasses.dataclass(frozen=True)
class Report:
    """The whole verification of one case.

    Attributes:
        name: of the case.
        function, reference: how they are called, for people.
        inputs: as used.
        tensors: the rows.
        raised: set where the kernel raised.
        seed, profile, device, seconds: of the run; the profile with its knobs, as specs and commands write it.
        notes: lines such as what was chosen, which warnings hold.
        battery: the rows of the contract battery, empty where it was not asked for.
        arithmetic: what the profile is made of, and why it is this one.
        consistent: what arithmetic the violated tensors are consistent with; () where they are explained otherwise.
    """

    name: str
    function: str
    reference: str
    inputs: tuple[InputReport, ...]
    tensors: tuple[TensorReport, ...]
    raised: Raised | None
    seed: int
    profile: str
    device: str
    seconds: float
    notes: tuple[str, ...] = ()
    battery: tuple[BatteryRow, ...] = ()
    arithmetic: Arithmetic = dataclasses.field(default_factory=Arithmetic)
    consistent: tuple[Consistency, ...] = ()

    @property
    def granted(self) -> str:
        """The arithmetic in one line: "profile ieee (auto), bound probabilistic (fails with probability 3e-12)"."""
        found = self.arithmetic
        parts = [f"profile {self.profile}{' (auto)' if found.reason else ''}"]
        if found.failure is not None:
            parts.append(f"bound {found.bound} (fails with probability {found.failure:.1g})")
        return ", ".join(parts)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the case: raised, violated, then whatever is not decided, then covered."""
        if self.raised is not None:
            return Verdict.RAISED
        found = {row.verdict for row in self.tensors if row.elements or row.verdict is not Verdict.COVERED}
        found |= {_OF_OUTCOME[row.outcome] for row in self.battery if row.outcome in _OF_OUTCOME}
        for verdict in (Verdict.RAISED, Verdict.VIOLATED, Verdict.UNDECIDED, Verdict.UNCONSTRAINED, Verdict.SUSPECT):
            if verdict in found:
                return verdict
        return Verdict.COVERED if found else Verdict.NOTHING

    @property
    def covered(self) -> bool:
        """True where every element of every tensor is covered."""
        return self.verdict is Verdict.COVERED

    def __bool__(self) -> bool:
        """Return `covered`, so that a report can be asserted."""
        return self.covered

    def row(self, name: str) -> TensorReport:
        """Return the row called `name`.

        Raises:
            KeyError: no tensor has this name; the message lists those that exist.
        """
        for row in self.tensors:
            if row.name == name:
                return row
        raise KeyError(f"{name!r}: this report has {', '.join(row.name for row in self.tensors)}")


_OF_OUTCOME = {Outcome.FAIL: Verdict.VIOLATED, Outcome.UNDECIDED: Verdict.UNDECIDED}
