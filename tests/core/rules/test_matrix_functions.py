"""The matrix exponential: eager kernels covered, errors caught."""

from __future__ import annotations

import flint
import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.filter.run import RAD_FRACTION
from tests.core.rules.checker import check_rule, evaluate


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 2, 2)])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_matrix_exp_covers_eager_kernels(shape: tuple[int, ...], scale: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check_rule(torch.linalg.matrix_exp, [scale * torch.randn(shape)], [dtype], planted_ulp=16384, caught=0.4)


def exponential(a: torch.Tensor) -> torch.Tensor:
    with flint.ctx.workprec(200):
        matrix = flint.arb_mat(*a.shape, [flint.arb(v) for v in a.double().reshape(-1).tolist()])
        return torch.tensor([float(v) for v in matrix.exp().entries()], dtype=torch.float64).reshape(a.shape)


@pytest.mark.parametrize("norm", [0.0002, 0.001, 0.02, 0.049, 0.1, 0.3, 0.57, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrix_exp_knows_the_exact_value_where_pytorchs_polynomials_change(dtype: torch.dtype, norm: float) -> None:
    a = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a = (a / a.abs().sum(0).max() * norm).to(dtype)
    (result,), (eager,) = evaluate(torch.linalg.matrix_exp, [a], gradient=False)
    exact = exponential(a)
    assert result.covers(exact.to(dtype)).all()
    if dtype is torch.float32:
        assert ((result.enclosure.mid - exact).abs() <= RAD_FRACTION * result.enclosure.bound_or_zero()).all()
    wrong = {torch.float32: (0.57,), torch.float64: (0.02, 0.049)}[dtype]  # degree 8 near its largest norm: finding 42
    assert bool((result.verdict(eager) == Element.VIOLATED).any()) == (norm in wrong)
