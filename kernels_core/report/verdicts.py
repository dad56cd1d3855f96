"""The words of a report: what came of a tensor, a case or an item of the battery."""

from __future__ import annotations

import enum


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
