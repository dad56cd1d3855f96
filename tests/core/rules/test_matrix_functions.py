"""The matrix exponential: eager kernels covered, errors caught."""

from __future__ import annotations

import pytest
import torch

from tests.core.rules.checker import check_rule


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 2, 2)])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_matrix_exp_covers_eager_kernels(shape: tuple[int, ...], scale: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check_rule(torch.linalg.matrix_exp, [scale * torch.randn(shape)], [dtype], planted_ulp=16384, caught=0.4)
