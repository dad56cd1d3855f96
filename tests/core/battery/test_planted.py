"""The kernels of configs/contract_faults.yaml: the item catches each and leaves correct ones alone."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pytest
import torch

from exactref_cli import plan
from exactref_cli.run import Case, run_case
from kernels_core.battery import ITEMS
from kernels_core.report import Outcome, Report, Verdict

SPEC = pathlib.Path(__file__).resolve().parents[3] / "configs" / "contract_faults.yaml"
CASES = {case.name: case for case in plan.from_specs([SPEC])}


def report_of(case: Case) -> Report:
    report = run_case(case).report
    assert report is not None
    assert {row.verdict for row in report.tensors} == {Verdict.COVERED}
    return report


def correct(case: Case) -> Any:
    """Return the kernel that the faulty one was made of, or the reference."""
    base = case.function.__mro__[1] if isinstance(case.function, type) else None
    made_of = base not in (None, torch.autograd.Function, torch.nn.Module)
    return base if made_of else case.reference


@pytest.mark.parametrize("name", CASES)
def test_the_item_catches_a_fault_that_the_plain_comparison_misses(name: str) -> None:
    report = report_of(CASES[name])
    assert report.verdict is Verdict.VIOLATED
    assert [(row.name, row.outcome) for row in report.battery] == [(name, Outcome.FAIL)]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if correct(case) is not None])
def test_the_item_leaves_a_correct_kernel_alone(name: str) -> None:
    (row,) = report_of(dataclasses.replace(CASES[name], function=correct(CASES[name]))).battery
    assert row.outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE), row


def test_every_item_has_a_fault_but_for_the_one_that_reports() -> None:
    assert set(CASES) == set(ITEMS) - {"determinism"}
