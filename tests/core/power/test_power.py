"""The mutation score: faults are planted where they say, and a fault that is none is not counted."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

import exactref as er
from exactref_cli.app import app
from kernels_core.errors import UsageError
from kernels_core.power import Laboratory, power
from kernels_core.power.results import KINDS
from kernels_core.power.score import Fate
from kernels_core.power.steps import Fault, Steps, counted

Tensor = torch.Tensor


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def product(A: Tensor, B: Tensor) -> Tensor:
    return A @ B


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_changes_a_generic_square_result(kind: str) -> None:
    value = seeded(6, 6)
    damaged = KINDS[kind](value.clone())
    assert damaged is not None
    assert (damaged.shape, damaged.dtype) == (value.shape, value.dtype)
    assert not torch.equal(damaged, value)


def test_there_are_twenty_kinds_or_more() -> None:
    assert len(KINDS) >= 20


def test_every_fault_in_a_matmul_is_caught() -> None:
    score = power(Laboratory(product, {"A": seeded(8, 8), "B": seeded(8, 8, seed=1)}, reference=er.matmul))
    assert score.missed == ()
    assert score.caught == score.counted > 90


def test_fault_is_planted_in_the_operation_that_it_names() -> None:
    A, B = seeded(4, 4), seeded(4, 4, seed=1)
    run = lambda: (A @ B, torch.exp(A))  # noqa: E731
    assert [operation.name for operation in counted(run)] == ["aten.mm", "aten.exp"]
    with Steps(Fault(1, "aten.exp", "factor 2")):
        first, second = run()
    assert torch.equal(first, A @ B)
    assert torch.equal(second, 2 * torch.exp(A))


def test_fault_in_the_backward_damages_the_gradient_alone() -> None:
    laboratory = Laboratory(product, {"A": seeded(4, 6), "B": seeded(6, 4, seed=1)}, reference=er.matmul)
    score = power(laboratory)
    found = [m for m in score.mutants if m.place.endswith("aten.mm") and m.kind == "sign flipped"]
    assert [m.fate for m in found] == [Fate.VIOLATED] * 3
    damaged = found[-1].damaged
    assert damaged is not None
    assert torch.equal(damaged["output"], laboratory.undamaged["output"])


def test_fault_that_changes_no_value_is_equivalent() -> None:
    score = power(Laboratory(product, {"A": torch.zeros(3, 3), "B": torch.zeros(3, 3)}, reference=er.matmul))
    flipped = {m.place: m for m in score.mutants if m.kind == "sign flipped"}
    assert flipped["result output"].fate is Fate.EQUIVALENT
    assert flipped["result output"].reason == "no value changed"


def test_long_sums_in_lower_precision_are_caught_as_suspect() -> None:
    laboratory = Laboratory(product, {"A": seeded(16, 4096), "B": seeded(4096, 16, seed=1)}, reference=er.matmul)
    assert laboratory.judge({**laboratory.undamaged, "output": laboratory.inputs["A"].half().float() @
                             laboratory.inputs["B"].half().float()}) is Fate.SUSPECT  # fmt: skip


def test_kernel_that_is_wrong_by_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="not covered by itself: violated"):
        Laboratory(lambda A, B: 2 * (A @ B), {"A": seeded(3, 3), "B": seeded(3, 3)}, reference=er.matmul)


def test_command_prints_the_score() -> None:
    found = CliRunner().invoke(app, ["power", "configs/kernels.py:MyMatmul", "--shape", "A=4x4", "--shape", "B=4x4"])
    assert found.exit_code == 0, found.output
    assert "mutants caught" in found.stdout
    assert "rounded to bfloat16" in found.stdout
