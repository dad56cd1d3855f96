"""The exception tree.

Every error that a caller can cause says what is wrong and what to do next.

    ExactRefError            a caller's mistake; the command line prints its text and exits 2
    +-- UsageError           a wrong shape, dtype, name or value (also a ValueError)
    +-- TargetError          a module, attribute or file that cannot be loaded
    +-- SpecError            one or more mistakes in a spec file
    +-- TraceError           a reference that cannot be turned into a program
    |   +-- UnsupportedOperation   an operation that has no rule
    +-- AssumptionError      this machine's arithmetic is not what the bounds rest on; exit 4
    NotCovered               raised by assert_covered (also an AssertionError)
    InvariantError           a bug of ours; exit 3
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def described(error: BaseException) -> str:
    """Return "ValueError: the message" of any exception, "KeyError" of one that has no message."""
    name, message = type(error).__name__, str(error).strip()
    return f"{name}: {message}" if message else name


class ExactRefError(Exception):
    """A mistake that the caller can mend; the message says how."""


class UsageError(ExactRefError, ValueError):
    """A wrong shape, dtype, name or value was given."""


class TargetError(ExactRefError):
    """A module, attribute or file could not be loaded.

    Attributes:
        frames: the user's own traceback, shortened to their frames ("" when there is none).
    """

    def __init__(self, message: str, frames: str = "") -> None:
        """Keep the message and the user's own frames apart, so that they can be printed apart."""
        super().__init__(message)
        self.frames = frames


class SpecError(ExactRefError):
    """One or more mistakes in a spec file; `mistakes` holds one line for each."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        """Join the mistakes, one line each."""
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(self.mistakes))


class TraceError(ExactRefError):
    """The reference could not be turned into a program."""


class UnsupportedOperation(TraceError):
    """The reference uses an operation that has no rule.

    Attributes:
        operation: the ATen name, such as "aten.bernoulli.p".
        source: "file:line" of the reference that called it, "" where unknown.
    """

    def __init__(self, operation: str, source: str = "", hint: str = "") -> None:
        """Name the operation, where it came from and what to do."""
        self.operation, self.source = operation, source
        where = f" (from {source})" if source else ""
        remedy = hint or "write the reference with other operations; `exactref list` shows those with rules"
        super().__init__(f"operation {operation} has no rule{where}\n{remedy}")


class AssumptionError(ExactRefError):
    """The arithmetic of this process is not what the filter's bounds rest on, so that nothing can be decided."""


class NotCovered(AssertionError):
    """Raised by `assert_covered`: the message is the full report."""


class InvariantError(RuntimeError):
    """A promise of this program to itself is broken: a bug of ours, never the caller's."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `, did you mean "x"?` for the nearest known name, or "" where none is near."""
    match = difflib.get_close_matches(name, list(known), n=1)
    return f', did you mean "{match[0]}"?' if match else ""
