"""Single results and common factors: what no root mean square shows is suspect, what roundings explain is not."""

from __future__ import annotations

import pytest
import torch

from kernels_core.audit.measures import Measures
from kernels_core.report import TensorReport, Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor


def row_of(kernel, reference, **inputs: Tensor) -> TensorReport:
    (row,) = verify(kernel, inputs, reference=reference, wrt=[]).tensors
    return row


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def with_one_element_off(a: Tensor, b: Tensor) -> Tensor:
    found = a @ b
    found[3, 5] *= 1 + 2**-12
    return found


def test_one_element_in_a_thousand_is_suspect_inside_the_bound_of_a_long_sum() -> None:
    row = row_of(with_one_element_off, product, a=normal(32, 4096), b=normal(4096, 32, seed=1))
    assert row.verdict is Verdict.SUSPECT
    assert row.precision is not None
    assert row.precision.bits_lost < 5
    assert "single results are" in row.note


def over_one_less(x: Tensor) -> Tensor:
    return x.sum(1) / (x.shape[1] - 1)


def a_thousandth_more(a: Tensor, b: Tensor) -> Tensor:
    return (1.001 * (a.float() @ b.float())).half()


def test_a_common_factor_is_suspect_inside_the_bound_of_a_long_sum() -> None:
    half = {"dtype": torch.float16}
    mean = row_of(over_one_less, lambda x: x.mean(1), x=normal(512, 4096))
    scaled = row_of(a_thousandth_more, product, a=normal(64, 4096, **half), b=normal(4096, 64, seed=1, **half))
    for row in (mean, scaled):
        assert row.verdict is Verdict.SUSPECT
        assert row.precision is not None
        assert row.precision.common_bits > 5
    assert "all results share a factor" in scaled.note


@pytest.mark.parametrize("n", [3, 7, 100])
def test_a_mean_as_a_product_with_the_rounded_reciprocal_is_not_suspect(n: int) -> None:
    row = row_of(lambda x: x.sum(1) * torch.tensor(1 / n), lambda x: x.mean(1), x=normal(4096, n) + 2)
    assert row.verdict is Verdict.COVERED


def test_a_row_statistic_that_all_elements_share_is_not_suspect() -> None:
    row = row_of(
        lambda x: torch.exp(x - torch.logsumexp(x, -1, True)), lambda x: torch.softmax(x, -1), x=normal(1, 4096)
    )
    assert row.verdict is Verdict.COVERED


def test_common_part_of_independent_errors_is_what_chance_makes() -> None:
    errors, exact = normal(4096), normal(4096, seed=1)
    found = Measures.of(errors, exact)
    assert found.common < 4 * found.rms / 64
    assert Measures.of(errors + exact / 8, exact).common > 7 * found.rms / 64


def test_measures_leave_out_what_is_not_known() -> None:
    errors, exact = torch.tensor([torch.nan, 1.0, -1.0]), torch.tensor([1.0, 2.0, 2.0])
    assert Measures.of(errors, exact) == Measures(1.0, 1.0, 0.0)
    assert Measures.of(errors[:1], exact[:1]) == Measures()
