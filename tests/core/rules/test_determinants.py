"""Determinants: eager kernels covered, errors caught, singular matrices bounded."""

from __future__ import annotations

import pytest
import torch

from kernels_core.coverage import Element
from tests.core.rules.checker import check_rule, evaluate
from tests.core.rules.test_solving import regular


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (4, 4), (3, 2, 2)])
def test_det_covers_eager_kernels(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    a = regular(*shape) if shape[-1] else torch.zeros(shape)
    check_rule(torch.linalg.det, [a], [dtype], planted_ulp=1024)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 2, 2)])
def test_slogdet_covers_eager_kernels(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check_rule(lambda a: tuple(torch.linalg.slogdet(a)), [regular(*shape)], [dtype], planted_ulp=1024)


def test_the_determinant_of_a_singular_matrix_is_bounded() -> None:
    a = torch.arange(9.0).reshape(3, 3)
    (result,), (actual,) = evaluate(torch.linalg.det, [a], gradient=False)
    assert int(result.verdict(actual)) != Element.VIOLATED
    assert int(result.verdict(torch.tensor(1.0))) == Element.VIOLATED
