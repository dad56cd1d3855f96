"""Runs one item of the battery on a kernel, and what a planted fault must and must not show."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from exactref_cli import target
from kernels_core.battery import Settings
from kernels_core.report import BatteryRow, Outcome, Report, Verdict
from kernels_core.verify import verify

Kernel = Callable[..., Any]


CONFIGS = pathlib.Path(__file__).resolve().parents[3] / "configs"


def kernel(name: str, file: str = "contract_faults.py") -> Any:
    """Return a kernel of the examples."""
    return target.load_callable(f"{file}:{name}", CONFIGS)


def seeded(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def report_of(function: Kernel, item: str, inputs: Mapping[str, Any], **options: Any) -> Report:
    settings = Settings(**{key: options.pop(key) for key in ("sizes", "nondet_tol", "free") if key in options})
    return verify(function, inputs, battery=[item], settings=settings, **options)


def row_of(function: Kernel, item: str, inputs: Mapping[str, Any], **options: Any) -> BatteryRow:
    """Return the row of the item; the plain comparison must have covered every element."""
    report = report_of(function, item, inputs, **options)
    assert report.raised is None, report.raised
    assert {row.verdict for row in report.tensors} == {Verdict.COVERED}
    (row,) = report.battery
    assert report.verdict is {Outcome.FAIL: Verdict.VIOLATED}.get(row.outcome, Verdict.COVERED)
    return row


def require_caught(function: Kernel, item: str, inputs: Mapping[str, Any], evidence: str, **options: Any) -> None:
    """Require that the item fails, says why in these words, and that the plain comparison sees nothing."""
    row = row_of(function, item, inputs, **options)
    assert row.outcome is Outcome.FAIL, row
    assert evidence in row.evidence, row


def require_left_alone(
    function: Kernel, item: str, inputs: Mapping[str, Any], outcome: Outcome = Outcome.PASS, **options: Any
) -> BatteryRow:
    """Require that the item has nothing against a correct kernel."""
    row = row_of(function, item, inputs, **options)
    assert row.outcome is outcome, row
    return row
