"""A module in its other mode."""

from __future__ import annotations

import torch

from kernels_core.kernel.modules import ModuleKernel
from kernels_core.report import Outcome
from tests.core.battery.planted import kernel, report_of, require_caught, require_left_alone, row_of, seeded

X = {"x": seeded(4, 6)}


class Normalises(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((6,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - (x.mean(0) if self.training else self.mean)


class WrongInEvaluation(Normalises):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1 if self.training else 2)


class DropsInTraining(Normalises):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5, self.training)


def test_a_fault_in_the_other_mode_is_caught_by_a_module_and_a_right_one_is_left_alone() -> None:
    evidence = "evaluation mode: 24 of 24 elements of output violated"
    require_caught(WrongInEvaluation, "other_mode", X, evidence, reference=Normalises)
    row = require_left_alone(Normalises, "other_mode", X, reference=Normalises)
    assert row.evidence == "right in evaluation mode too"
    row = require_left_alone(ModuleKernel(Normalises(), "eval"), "other_mode", X)  # its own forward
    assert row.evidence == "right in training mode too"


def test_what_a_function_without_modes_does_not_do_is_noted() -> None:
    row = require_left_alone(Normalises, "other_mode", X, Outcome.NOTED, reference=lambda x: x - x.mean(0))
    assert row.evidence.startswith("evaluation mode: 24 of 24 elements of output violated")
    assert "; the reference has no modes" in row.evidence


def test_a_mode_that_draws_random_numbers_is_not_judged() -> None:
    row = row_of(ModuleKernel(DropsInTraining(), "eval"), "other_mode", X, reference=DropsInTraining)
    assert (row.outcome, row.evidence) == (
        Outcome.NOTED, "not judged in training mode: the reference has no value there",
    )  # fmt: skip


def test_what_is_no_module_has_no_modes() -> None:
    require_left_alone(kernel("Sine"), "other_mode", X, Outcome.NOT_APPLICABLE)


class IgnoresItsWeight(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * (1 if self.training else 2)


def test_the_mode_asked_for_is_run_where_the_reference_takes_no_parameter() -> None:
    report = report_of(ModuleKernel(IgnoresItsWeight(), "eval"), "other_mode", X, reference=lambda x: torch.sin(x))
    assert not report
    assert report.battery[0].evidence == "right in training mode too"
