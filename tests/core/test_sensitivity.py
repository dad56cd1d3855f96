"""What inputs and bounds would show: the shares are those of faults that are really planted."""

from __future__ import annotations

import pytest
import torch

import exactref as er
from kernels_core.formats import FLOAT16, round_to_nearest
from kernels_core.report import Report
from kernels_core.sensitivity import insensitive, sensitivity
from kernels_core.verify import check

Tensor = torch.Tensor


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def product(A: Tensor, B: Tensor) -> Tensor:
    return A @ B


def result(K: int) -> er.Result:
    return er.matmul(seeded(32, K), seeded(K, 32, seed=1))


@pytest.mark.parametrize("K", [16, 256, 2048])
def test_share_is_that_of_planted_roundings_and_factors(K: int) -> None:
    found, exact = sensitivity(result(K)), result(K)
    assert found is not None
    rounded = round_to_nearest(exact.enclosure.mid, FLOAT16).float()
    assert found.rounding["float16"] == pytest.approx(float((~exact.covers(rounded)).double().mean()), abs=0.02)
    scaled = (exact.enclosure.mid * 1.001).float()
    assert found.factor_1_001 == pytest.approx(float((~exact.covers(scaled)).double().mean()), abs=0.02)


def test_longer_sums_show_less() -> None:
    shares = [sensitivity(result(K)) for K in (16, 256, 4096)]
    rounding = [found.rounding["float16"] for found in shares if found is not None]
    in_sum = [found.in_sum["tf32"] for found in shares if found is not None]
    assert rounding == sorted(rounding, reverse=True)
    assert rounding[0] > 0.9
    assert in_sum[0] > 0.9
    assert in_sum[-1] == 0


@pytest.mark.parametrize(("K", "flagged"), [(32, True), (4096, False)])
def test_tf32_in_the_sum_is_foreseen(K: int, flagged: bool) -> None:
    A, B, exact = seeded(32, K), seeded(K, 32, seed=1), result(K)
    narrow = A.half().float() @ B.half().float()
    found = sensitivity(exact)
    assert found is not None
    assert (found.in_sum["tf32"] > 0.005) == flagged
    assert bool((~exact.covers(narrow)).any()) == flagged


def test_result_without_floating_elements_has_no_sensitivity() -> None:
    assert sensitivity(er.reference(lambda x: x.argmax())(seeded(4))) is None


def of_matmul(A: Tensor, B: Tensor) -> Report:
    return check(product, (A, B), reference=er.matmul)


def test_insensitive_names_the_tensors_that_could_not_show_a_rounding() -> None:
    assert insensitive(of_matmul(seeded(4, 4), seeded(4, 4)), "float16") == []
    assert insensitive(of_matmul(torch.ones(4, 4), torch.ones(4, 4)), "float16") == ["output"]
    assert insensitive(of_matmul(seeded(4, 4).half(), seeded(4, 4).half()), "float16") is None


def test_an_exact_copy_shows_only_what_its_own_format_can_tell_apart() -> None:
    """1.001 x is x again in bfloat16, and so is a value of float16 in float16: the bound of a copy is zero."""
    copied = er.reference(lambda x: x.clone())
    narrow, wide = sensitivity(copied(seeded(64).bfloat16())), sensitivity(copied(seeded(64).half().float()))
    assert narrow is not None
    assert wide is not None
    assert (narrow.factor_1_001, narrow.factors[7] > 0, narrow.zeroed) == (0, True, 1)
    assert (wide.rounding["float16"], wide.factor_1_001, wide.in_sum) == (0, 1, {})
