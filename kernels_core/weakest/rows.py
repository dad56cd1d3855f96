"""Which rows of a table are asked what arithmetic they are consistent with: those that nothing else explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kernels_core.blame.formula import WRONG
from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.diagnosis import CUT_SHORT, precision
from kernels_core.report import Consistency, Failure, TensorReport
from kernels_core.result import Result
from kernels_core.weakest import Violation, weakest

_OPEN = (precision.PREFIX, CUT_SHORT, "violated on ")  # diagnoses that name no cause beside the arithmetic
_ZERO = "zero"  # what flushing makes, too


def consistent(
    rows: Sequence[TensorReport],
    check: Check,
    results: Mapping[str, Result],
    returned: Mapping[str, torch.Tensor | None],
    upstream: Sequence[torch.Tensor] | None,
    cost: float,
) -> tuple[Consistency, ...]:
    """Return what arithmetic the violated rows are consistent with, see `weakest`.

    Args:
        rows: of the table.
        check: as `weakest`.
        results: what is admissible, by name.
        returned: outputs and gradients of the kernel.
        upstream: as `weakest`.
        cost: as `weakest`.
    """
    names = [row.name for row in rows if row.failure is not None and not _explained(row.failure)]
    values = {name: value for name in names if (value := returned.get(name)) is not None}
    violated = {
        name: Violation(value, (results[name].verdict(value) == Element.VIOLATED)) for name, value in values.items()
    }
    return weakest(check, upstream, violated, cost)


def _explained(failure: Failure) -> bool:
    """Return True where the values tell another cause, or a line of the kernel is a wrong formula."""
    causes = [line for line in failure.diagnosis if not line.startswith(_OPEN) and not line.endswith(_ZERO)]
    return bool(causes) or any(blame.verdict == WRONG for blame in failure.blame)
