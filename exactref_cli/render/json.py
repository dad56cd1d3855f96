"""The report as JSON, with a version: everything that the table has, in the same words."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Sequence
from typing import Any

from exactref_cli.render.case import summary
from exactref_cli.run import Outcome

VERSION = 1  # raised when a key changes its meaning or goes away; new keys do not count


def text(outcomes: Sequence[Outcome], code: int) -> str:
    """Return the whole run as a JSON text; numbers that JSON lacks become "inf", "-inf" and "nan"."""
    whole = {
        "version": VERSION,
        "exit_code": code,
        "summary": summary(outcomes),
        "cases": [_case(outcome) for outcome in outcomes],
    }
    return json.dumps(plain(whole), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """Return `value` made of what JSON has."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _case(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    found: dict[str, Any] = {"name": case.name, "verdict": outcome.words, "expect": case.expect}
    found |= {"exit_code": outcome.code, "error": outcome.error, "repeat": case.repeat}
    found |= {"insensitive": list(outcome.insensitive)}
    if outcome.report is not None:
        found |= {**plain(outcome.report), "verdict": outcome.report.verdict.value}
    return found
