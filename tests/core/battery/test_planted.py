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
from kernels_core.inputs import families
from kernels_core.kernel.modules import ModuleKernel
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
    if isinstance(case.function, ModuleKernel):
        return ModuleKernel(type(case.function.module).__mro__[1](), "eval")
    base = case.function.__mro__[1] if isinstance(case.function, type) else torch.autograd.Function
    return case.reference if base is torch.autograd.Function else base


@pytest.mark.parametrize("name", CASES)
def test_the_item_catches_a_fault_that_the_plain_comparison_misses(name: str) -> None:
    report = report_of(CASES[name])
    assert report.verdict is Verdict.VIOLATED
    assert [(row.name, row.outcome) for row in report.battery] == [(name, Outcome.FAIL)]


@pytest.mark.parametrize("name", CASES)
def test_the_item_leaves_a_correct_kernel_alone(name: str) -> None:
    (row,) = report_of(dataclasses.replace(CASES[name], function=correct(CASES[name]))).battery
    assert row.outcome is Outcome.PASS, row  # not "not applicable": it looked


def test_every_item_has_a_fault() -> None:
    assert set(CASES) == set(ITEMS)


# Families that no item draws: what the plain comparison draws, and mixtures of the others.
_DRAWN_OTHERWISE = {"normal", "positive", "ones", "mixed"}


def test_every_family_of_values_has_an_item_and_so_a_fault() -> None:
    items = {name.removeprefix("values_") for name in CASES if name.startswith("values_")}
    assert set(families.FAMILIES) - _DRAWN_OTHERWISE == (items - {"thresholds", "repeated", "masks"}) | {"zero_rows"}
