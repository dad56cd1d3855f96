"""`bound: probabilistic`: sharper on long sums, labelled, and refused where errors have one sign."""

import math

import numpy as np
import pytest
import torch

import exactref as er
from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.errors import UsageError
from kernels_core.filter.growth import LAMBDA, TERM_FAILS, growth
from kernels_core.profiles import PROFILES, resolve
from tests.core.profiles import simulated

total = er.reference(lambda x: x.sum(-1), name="total")


def admitted(x: torch.Tensor, bound: str) -> er.Result:
    return Check(total, {"x": x}, profile="ieee", bound=bound).outputs()["output"]


def test_term_of_a_long_sum_is_granted_lambda_root_n_roundings() -> None:
    profile, u, n = resolve("ieee", "probabilistic"), 2.0**-24, 1 << 16
    assert growth(profile, n, u) == pytest.approx(LAMBDA * math.sqrt(n) * u, rel=1e-2)
    assert growth(profile, 50, u) == growth(PROFILES["ieee"], 50, u)


@pytest.mark.parametrize("signed", [False, True])
def test_random_sums_are_covered_and_far_less_is_granted(signed: bool) -> None:
    generator = np.random.default_rng(0)
    x = (generator.standard_normal((32, 65536)) if signed else generator.random((32, 65536))).astype(np.float32)
    actual = torch.from_numpy(simulated.sequential(x, "float32")).float()
    sharp, wide = (admitted(torch.from_numpy(x), bound) for bound in ("probabilistic", "worst-case"))
    assert bool(sharp.covers(actual).all())
    assert float((wide.enclosure.bound_or_zero() / sharp.enclosure.bound_or_zero()).min()) > 20


def test_report_states_the_probability_of_all_terms() -> None:
    x = torch.rand(8, 4096)
    report = er.check(lambda x: x.sum(-1), (x,), reference=total, profile="ieee", bound="probabilistic")
    assert report.arithmetic.failure == pytest.approx(report.arithmetic.failure or 0.0)
    assert 8 * 4096 * TERM_FAILS <= (report.arithmetic.failure or 0.0) < 100 * 8 * 4096 * TERM_FAILS
    assert "bound probabilistic (fails with probability" in report.granted


def test_equal_terms_break_the_model_of_independent_roundings() -> None:
    x = np.full((1, 1 << 20), 0.1, np.float32)
    actual = torch.from_numpy(simulated.sequential(x, "float32")).float()
    assert int(admitted(torch.from_numpy(x), "probabilistic").verdict(actual)) == Element.VIOLATED
    assert int(admitted(torch.from_numpy(x), "worst-case").verdict(actual)) == Element.COVERED


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if profile.blocks])
def test_truncating_accumulator_is_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"bound: probabilistic is refused for the profile .* whose accumulators truncate"
    ):
        resolve(name, "probabilistic")


def test_mistaken_bound_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="found 'probabilistc', did you mean \"probabilistic\""):
        resolve("ieee", "probabilistc")
