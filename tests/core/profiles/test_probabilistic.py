"""`bound: probabilistic`: sharper on long sums, labelled, and refused where errors have one sign."""

import math

import numpy as np
import pytest
import torch

import exactref as er
from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.errors import UsageError
from kernels_core.filter.growth import LAMBDA, TERM_FAILS, growth, probable
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


ERRORS = {
    "largest": lambda draw: np.where(draw < 0.5, -1.0, 1.0),
    "uniform": lambda draw: 2 * draw - 1,
    "rare": lambda draw: np.where(draw < 0.9, -1 / 9, 1.0),  # mean zero, far from symmetric
}


@pytest.mark.parametrize("u", [2.0**-4, 2.0**-9])
@pytest.mark.parametrize("steps", [1, 9, 100])
@pytest.mark.parametrize("name", ERRORS)
def test_path_of_random_roundings_exceeds_its_grant_no_more_often_than_stated(name: str, steps: int, u: float) -> None:
    draw = np.random.default_rng(steps).random((10_000, steps))
    off = np.abs(np.prod(1 + u * ERRORS[name](draw), axis=1) - 1)
    for deviations in (1.0, 2.0, 3.0):
        share = float((off > probable(steps, u, deviations)).mean())
        assert share <= 2 * math.exp(-(deviations**2) / 2)


def stochastic_sum(x: np.ndarray, bits: int, generator: np.random.Generator) -> np.ndarray:
    """The running sum of each row, every addition rounded up or down to `bits` bits with mean zero."""
    total = np.zeros(len(x))
    for term in x.T:
        total = total + term
        step = 2.0 ** (np.frexp(total)[1] - bits)
        total = np.floor(total / step + generator.random(len(total))) * step
    return total


@pytest.mark.parametrize("n", [5, 40])
def test_random_legal_sum_exceeds_its_grant_no_more_often_than_stated(n: int) -> None:
    generator, bits, deviations = np.random.default_rng(n), 9, 3.5
    x = np.ldexp(generator.integers(1, 2**8, (5_000, n)), -8).astype(np.float64)  # values of the format
    off = np.abs(stochastic_sum(x, bits, generator) - x.sum(1))
    u = 2.0 ** (1 - bits)  # up or down by less than one unit in the last place
    share = float((off > probable(n - 1, u, deviations) * np.abs(x).sum(1)).mean())
    assert share <= n * 2 * math.exp(-(deviations**2) / 2)
    assert float((off > probable(n - 1, u, 0.02) * np.abs(x).sum(1)).mean()) > 0.1  # the roundings are felt
