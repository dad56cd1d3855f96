"""Each hypothesis names its planted fault, and claims none of the others."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import exactref as er
from kernels_core import rows
from kernels_core.diagnosis import FAMILIES, evidence
from kernels_core.verify import check

_SPEC = importlib.util.spec_from_file_location("planted_faults", Path(__file__).with_name("faults.py"))
planted = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = planted
_SPEC.loader.exec_module(planted)
FAULTS = planted.FAULTS
HYPOTHESES = {hypothesis.name: hypothesis for family in FAMILIES for hypothesis in family}
KIN = {fault.name: fault for fault in (*FAULTS, *planted.UNNAMED)}


def said(fault) -> tuple[str, ...]:
    report = check(fault.kernel, fault.arguments(), reference=er.reference(fault.reference))
    failure = report.row(fault.row).failure
    assert failure is not None, f"{fault.name} is not violated"
    return failure.diagnosis


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_fault_is_named_and_no_other_claimed(fault) -> None:
    lines = said(fault)
    assert len(lines) == 1, lines
    assert fault.says in lines[0], lines


def test_every_hypothesis_has_a_planted_fault_and_one_of_its_kin() -> None:
    assert set(HYPOTHESES) == {fault.hypothesis for fault in FAULTS}
    assert set(HYPOTHESES) == set(planted.NOT_CLAIMED)


@pytest.mark.parametrize("name", HYPOTHESES)
def test_hypothesis_does_not_claim_the_fault_of_its_kin(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, offered, claimed = KIN[planted.NOT_CLAIMED[name]], [], []
    assert fault.hypothesis != name

    def asked_alone(given):
        if given.result.name == fault.row:
            offered.extend(HYPOTHESES[name].candidates(given))
            claimed.append([c.sentence for c in offered if evidence.explains(c, given)])
        return ()

    monkeypatch.setattr(rows, "diagnose", asked_alone)
    monkeypatch.setattr(rows, "blame", lambda given: ())
    said(fault)
    assert claimed == [[]]
    assert bool(offered) is (name not in planted.LOOK_FIRST)


def test_result_that_does_not_depend_on_the_inputs_is_not_called_stale() -> None:
    kernel = planted.function(lambda x: x * x, lambda x, g: g + torch.linspace(1, 2, 48).sin())
    failure = check(kernel, planted.vector(), reference=er.reference(planted.square)).row("grad_x").failure
    assert failure.diagnosis == ()


def noise(x: torch.Tensor) -> torch.Tensor:
    return planted.square(x) + torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) / 100


def test_nothing_is_claimed_of_what_no_hypothesis_explains() -> None:
    report = check(noise, planted.vector(), reference=er.reference(planted.square))
    assert report.row("output").failure.diagnosis == ()


def test_a_factor_on_a_single_element_is_no_diagnosis() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        return planted.square(x) * torch.where(torch.arange(48) == 7, 3, 1)

    report = check(kernel, planted.vector(), reference=er.reference(planted.square))
    assert report.row("output").violated == 1
    assert report.row("output").failure.diagnosis == ()


def test_values_that_are_coarse_anyway_are_no_sign_of_lower_precision() -> None:
    report = check(lambda x: x * x + 5 * x.cos().round(), ((planted.seeded(64) * 4).round(),),
                   reference=er.reference(planted.square))  # fmt: skip
    assert report.row("output").failure.diagnosis == ()


def test_diagnosis_that_runs_out_of_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "SECONDS", 0.0)
    report = check(noise, planted.vector(), reference=er.reference(planted.square))
    assert report.row("output").failure.diagnosis == (
        "diagnosis cut short: not every hypothesis was tested in the time that it may take",
    )


def test_upstream_gradient_read_as_contiguous_is_named() -> None:
    def backward(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return 2 * x * g.as_strided(g.shape, (5, 1))

    kernel = planted.function(planted.square, backward)
    report = check(kernel, (planted.seeded(9, 5),), reference=er.reference(planted.square),
                   grads=[planted.seeded(5, 9, seed=3).T])  # fmt: skip
    (line,) = report.row("grad_x").failure.diagnosis
    assert line.startswith("grad_output read as if it were contiguous")
