"""The battery as a whole: which items run, what they do to the verdict, and what they leave alone."""

from __future__ import annotations

import time

import pytest
import torch

from kernels_core import battery
from kernels_core.battery import ITEMS, select
from kernels_core.errors import UsageError
from kernels_core.report import Outcome, Verdict
from kernels_core.verify import summary, verify
from tests.core.battery.planted import report_of, seeded


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Overwrites(Double):
    @staticmethod
    def backward(ctx, grad):
        return grad.mul_(2)


def test_all_and_none_and_names_select_items():
    assert [item.name for item in select("all")] == list(ITEMS)
    assert select("none") == ()
    assert [item.name for item in select(["shared_grad_output", "grad_output_layout"])] == [
        "grad_output_layout", "shared_grad_output",
    ]  # fmt: skip


def test_unknown_item_is_named_with_its_nearest():
    with pytest.raises(
        UsageError, match="no battery item is called 'grad_layout', did you mean \"grad_output_layout\""
    ):
        select(["grad_layout"])


def test_every_item_says_what_it_looks_at_in_one_line():
    assert all(item.looks_at and len(item.looks_at) < 100 for item in ITEMS.values())


def test_failing_item_makes_the_case_violated_and_the_summary_says_why():
    report = report_of(Overwrites, "shared_grad_output", {"x": seeded(3)})
    assert report.verdict is Verdict.VIOLATED
    assert "battery shared_grad_output: fail: the second branch of output got another gradient" in summary(report)


def test_fault_of_the_table_is_not_told_again_by_every_item():
    class Tripled(Double):
        @staticmethod
        def backward(ctx, grad):
            return 3 * grad

    report = report_of(Tripled, "input_layout", {"x": seeded(3, 4)})
    assert report.row("grad_x").verdict is Verdict.VIOLATED
    assert report.battery[0].outcome is Outcome.PASS


def test_correct_kernel_passes_every_item():
    report = verify(Double, {"x": seeded(4, 6)}, battery="all")
    assert report.verdict is Verdict.COVERED
    assert not [row for row in report.battery if row.outcome in (Outcome.FAIL, Outcome.UNDECIDED, Outcome.SKIPPED)]


def test_inputs_and_random_state_are_left_as_they_were():
    x, before = seeded(4, 6), torch.random.get_rng_state()
    kept = x.clone()
    verify(Overwrites, {"x": x}, battery="all")
    assert torch.equal(x, kept)
    assert x.grad is None
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_costs_too_much_is_skipped_and_said(monkeypatch):
    monkeypatch.setattr(battery, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(battery, "COST_LIMIT", 0.0)
    monkeypatch.setattr(time, "process_time", iter(range(1000)).__next__)
    rows = verify(Double, {"x": seeded(3)}, battery="all").battery
    assert {row.outcome for row in rows} == {Outcome.SKIPPED}
    assert "times the plain check" in rows[0].evidence


def test_items_that_look_at_the_same_runs_share_them() -> None:
    calls = []

    def doubled(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return 2 * x

    def number(*items: str) -> int:
        calls.clear()
        verify(doubled, {"x": seeded(3)}, reference=lambda x: 2 * x, battery=items)
        return len(calls) - 1  # the plain comparison calls once

    assert [number("canaries"), number("unwritten"), number("canaries", "unwritten")] == [2, 2, 2]
    assert [number("later_calls"), number("determinism"), number("later_calls", "determinism")] == [2, 2, 2]
    assert [number("fresh_allocation"), number("fresh_allocation", "same_pointers", "later_calls")] == [4, 4]
    assert [number("aliasing"), number("aliasing", "differentiable_outputs")] == [3, 3]


def test_items_can_be_left_out_by_name() -> None:
    names = [item.name for item in select(["-double_backward", "-values"])]
    assert names == [n for n in ITEMS if n != "double_backward" and not n.startswith("values_")]
    assert [item.name for item in select(["mutation", "aliasing", "-mutation"])] == ["aliasing"]
    with pytest.raises(UsageError, match=r"'double_backwards', did you mean"):
        select("-double_backwards")
