"""What another order of a float32 sum returns is legal: the order is found and really run; nothing less will do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels_core.power import Laboratory, power
from kernels_core.power.orders import closest_order, closest_sum, paired, sequential
from kernels_core.power.score import Fate
from kernels_core.power.steps import Fault, Steps
from kernels_core.power.witness import returned_in_another_order

Tensor = torch.Tensor


def positive(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)).square()


@pytest.mark.parametrize("relative", [-1e-4, 1e-4])
def test_an_order_reaches_a_number_that_legal_errors_reach(relative: float) -> None:
    terms = positive(1 << 15).numpy()
    wanted = float(np.float32(terms.sum(dtype=np.float64) * (1 + relative)))
    order = closest_order(terms, wanted)
    assert sorted(order.tolist()) == list(range(len(terms)))
    assert sequential(terms[order]) == wanted


def test_no_order_reaches_a_number_beyond_the_bound_of_the_sum() -> None:
    terms = positive(1 << 10).numpy()
    exact = terms.sum(dtype=np.float64)
    assert sequential(terms[closest_order(terms, float(np.float32(1.01 * exact)))]) < exact * (1 + 2**-14)


@pytest.mark.parametrize("relative", [-6e-5, 6e-5])
def test_terms_added_in_pairs_first_reach_further_than_one_by_one(relative: float) -> None:
    terms = torch.rand(1 << 13, generator=torch.Generator().manual_seed(0)).numpy()
    wanted = float(np.float32(terms.sum(dtype=np.float64) * (1 + relative)))
    assert sequential(terms[closest_order(terms, wanted)]) != wanted
    assert closest_sum(terms, wanted) == wanted


@pytest.mark.parametrize("up", [True, False])
def test_pairs_are_float32_sums_of_all_terms_and_of_nothing_else(up: bool) -> None:
    terms = (2.0 ** np.arange(24)).astype(np.float32)  # each merged term names its parts
    terms[::3] *= -1
    parts = [int(abs(merged)) for merged in paired(terms, up=up)]
    assert sum(parts) == 2**24 - 1
    assert all(a & b == 0 for i, a in enumerate(parts) for b in parts[:i])


def total(x: Tensor) -> Tensor:
    return (x * 3).sum() / 7


def run_of(x: Tensor):
    return lambda: {"output": total(x)}


def test_a_scalar_result_is_legal_where_an_order_returns_it_and_not_beyond() -> None:
    run = run_of(positive(1 << 15))
    for factor, legal in ((1 + 5e-5, True), (1.01, False)):
        actual = {"output": (run()["output"].double() * factor).float()}
        assert returned_in_another_order(run, actual, None) is legal


def test_a_fault_before_a_sum_is_legal_where_an_order_of_the_undamaged_terms_returns_it() -> None:
    run = run_of(positive(1 << 15))
    for kind, legal in (("rounded to float16", True), ("factor 1.01", False)):
        fault = Fault(0, "aten.mul", kind)
        with Steps(fault):
            actual = run()
        assert not torch.equal(actual["output"], run()["output"])
        assert returned_in_another_order(run, actual, fault) is legal


def test_a_fault_before_a_sum_is_legal_where_one_that_is_added_to_it_takes_its_error() -> None:
    x = torch.randn(1024, 8, generator=torch.Generator().manual_seed(1))
    run = lambda: {"output": ((x * 0.02).sum(0) + x.sum(0)).half()}  # noqa: E731
    for kind, legal in (("rounded to bfloat16", True), ("factor 2", False)):
        fault = Fault(0, "aten.mul", kind)
        with Steps(fault):
            actual = run()
        assert not torch.equal(actual["output"], run()["output"])
        assert returned_in_another_order(run, actual, fault) is legal


def test_a_fault_behind_the_sum_is_not_excused() -> None:
    x = positive(64).reshape(8, 8)
    run = lambda: {"output": x.sum(1)}  # noqa: E731
    actual = {"output": torch.nextafter(x.sum(1), torch.tensor(9.0))}
    assert not returned_in_another_order(run, actual, None)


def test_score_leaves_legal_mutants_out_and_says_how_large_missed_ones_are() -> None:
    x = positive(1 << 14).reshape(128, 128)
    score = power(Laboratory(lambda x: (x * 3).mean(), {"x": x}, reference=lambda x: (x * 3).mean()), limit=4)
    legal = [mutant for mutant in score.mutants if mutant.fate is Fate.LEGAL]
    assert legal
    assert all(mutant.reason == "float32 sums in another order return the same" for mutant in legal)
    assert score.counted == len(score.mutants) - score.count(Fate.EQUIVALENT) - len(legal)
    assert all("bounds, " in mutant.reason and "of 5 bits" in mutant.reason for mutant in score.missed)
    assert score.missed
