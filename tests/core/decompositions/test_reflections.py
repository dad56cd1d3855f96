"""Products of Householder reflections: eager kernels covered, errors caught."""

from __future__ import annotations

import pytest
import torch

from tests.core.rules.checker import check_rule


@pytest.mark.parametrize("shape", [(4, 4), (4, 2), (2, 3, 2)])
def test_householder_product_covers_eager_kernels(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    vectors, tau = torch.geqrf(torch.randn(shape))
    function, f32 = torch.linalg.householder_product, [torch.float32]
    check_rule(function, [vectors, tau], f32, planted_ulp=2048, caught=0.7, gradient=False)
    check_rule(function, [vectors, tau], f32, planted_ulp=2.0**16, caught=0.3)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_ormqr_covers_eager_kernels(left: bool, transpose: bool) -> None:
    torch.manual_seed(1)
    vectors, tau = torch.geqrf(torch.randn(4, 3))
    other = torch.randn(4, 2) if left else torch.randn(2, 4)
    inputs, f32 = [vectors, tau, other], [torch.float32]
    check_rule(
        lambda v, t, c: torch.ormqr(v, t, c, left, transpose), inputs, f32, planted_ulp=2048, caught=0.7, gradient=False
    )
    check_rule(lambda v, t, c: torch.ormqr(v, t, c, left, transpose), inputs, f32, planted_ulp=2.0**16, caught=0.3)
