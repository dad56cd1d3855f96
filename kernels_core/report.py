"""What a verification found, as plain data: every renderer (table, JSON, failure screen) reads only this."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


class Verdict(str, enum.Enum):
    """The outcome for one tensor or one case; the value is the word that users see."""

    COVERED = "covered"
    VIOLATED = "violated"
    UNDECIDED = "undecided"
    UNCONSTRAINED = "unconstrained"
    SUSPECT = "suspect"
    RAISED = "raised"
    NOTHING = "nothing checked"

    def __str__(self) -> str:
        """Return the word that users see."""
        return self.value


@dataclasses.dataclass(frozen=True)
class Element:
    """One failing element.

    Attributes:
        index: logical index.
        actual: what the kernel returned (a Python float, complex or int, exact).
        lower, upper: ends of the admissible set in the result's dtype.
        exact: the exact value rounded to float64 (17 digits identify it).
        ulps_outside: distance from the admissible set in ulps of the dtype (inf for NaN or an infinity).
        ratio: actual / exact, None where that is not a number.
    """

    index: tuple[int, ...]
    actual: float
    lower: float
    upper: float
    exact: float
    ulps_outside: float
    ratio: float | None


@dataclasses.dataclass(frozen=True)
class Blame:
    """The line of the kernel that makes one tensor wrong.

    Attributes:
        place: "file:line".
        text: the line itself, "" where it cannot be read.
        verdict: "the formula is wrong here", "precision is lost here", "the first NaN appears here".
        reason: what was tried, and what it changed.
        callers: "file:line" of the user's frames that led there, innermost first.
    """

    place: str
    text: str
    verdict: str
    reason: str
    callers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why one tensor is violated.

    Attributes:
        elements: the worst elements, worst first, at most ten.
        pattern: which indices fail, one line ("all elements", "rows 3 and 7", "the last 3 columns").
        diagnosis: lines such as "all 512 failing elements are 1.5 times the exact value"; may be empty.
        strides: strides of the returned tensor.
        blame: the lines of the kernel that make it wrong, where it is made of PyTorch operations; may be empty.
    """

    elements: tuple[Element, ...]
    pattern: str
    diagnosis: tuple[str, ...]
    strides: tuple[int, ...]
    blame: tuple[Blame, ...] = ()


@dataclasses.dataclass(frozen=True)
class Precision:
    """The precision audit of one tensor; every error is divided by the element's bound.

    Attributes:
        elements: that were looked at.
        rms, bias: root mean square and mean of (actual - exact) / bound.
        native_rms: the same for the reference as PyTorch runs it in the declared dtypes.
        legal_rms: the same for random legal evaluations with sequential sums, None where they were not needed.
        bits_lost: log2(rms / max(native_rms, legal_rms)); -inf where the kernel has no error.
        works_in: the narrower format whose rounding of operands makes just these errors, "" where there is none.
    """

    elements: int
    rms: float
    bias: float
    native_rms: float
    legal_rms: float | None
    bits_lost: float
    works_in: str = ""

    @property
    def suspect(self) -> bool:
        """True where the kernel loses more than correct kernels do, or its errors are those of a narrower format."""
        return self.bits_lost > SUSPECT_BITS or bool(self.works_in)


SUSPECT_BITS = 5.0


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """Which faults of one tensor would be flagged on these inputs, as shares of its elements.

    Attributes:
        rounding: of the result, to each narrower format.
        factors: relative errors of 2^-k, by k.
        factor_1_001: a factor of 1.001.
        zeroed: an element left at zero.
        swapped: an element changed for its neighbour.
        in_sum: operands of the longest sum rounded to each narrower format; foreseen, where the sum makes the bound.
    """

    rounding: Mapping[str, float]
    factors: Mapping[int, float]
    factor_1_001: float
    zeroed: float
    swapped: float
    in_sum: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class TensorReport:
    """One row of the coverage table.

    Attributes:
        name: "output", "output[1]", "grad_A".
        kind: "output" or "gradient".
        shape, dtype: of the tensor, dtype as "float32".
        elements: number of elements; covered + violated + undecided + unconstrained = elements.
        kinks: covered elements that were accepted because they lie at a kink (counted in covered too).
        max_error_ulp: largest |actual - exact| in ulps of the dtype at the exact value.
        bound_ulp: median over the elements of the bound in ulps of the dtype.
        used: largest |actual - exact| / bound over the decided elements, bound taken with the final rounding.
        precision: the precision audit, None where it was not run or there was nothing to measure.
        verdict: COVERED only where every element is covered.
        failure: None unless violated.
        note: one line for the user, such as 'the backward returned None, which means zero'.
        sensitivity: which faults would be flagged, None for tensors without floating elements.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    elements: int
    covered: int
    violated: int
    undecided: int
    unconstrained: int
    kinks: int
    max_error_ulp: float
    bound_ulp: float
    used: float
    precision: Precision | None
    verdict: Verdict
    failure: Failure | None = None
    note: str = ""
    sensitivity: Sensitivity | None = None


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


class Outcome(str, enum.Enum):
    """The outcome of one item of the contract battery; the value is the word that users see.

    FAIL makes the case violated, UNDECIDED leaves it undecided; the others change no verdict.
    """

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    REFUSED = "refused"  # the kernel raised where it may: it is not silently wrong
    NOTED = "noted"  # something to know that is no fault
    NOT_APPLICABLE = "not applicable"
    SKIPPED = "skipped"

    def __str__(self) -> str:
        """Return the word that users see."""
        return self.value


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
