"""Fourier transforms: eager kernels covered whatever the length, errors caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.rules.transforms import NORMS
from tests.core.rules.checker import check_rule

# A prime length may be done as a convolution, which errs more: larger errors are planted.
ULP = {1: 512, 2: 512, 3: 1024, 8: 4096, 12: 4096, 17: 2.0**17}


def pairs(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.view_as_real(function(x, *args, **kwargs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", ULP)
def test_transforms_of_real_tensors_cover_eager_kernels(n: int, norm: str, dtype: torch.dtype) -> None:
    torch.manual_seed(n)
    check_rule(pairs(torch.fft.fft, norm=norm), [torch.randn(2, n)], [dtype], planted_ulp=ULP[n], caught=0.6)
    check_rule(pairs(torch.fft.rfft, norm=norm), [torch.randn(2, n)], [dtype], planted_ulp=ULP[n], caught=0.6)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", ULP)
def test_inverse_transforms_cover_eager_kernels(n: int, norm: str) -> None:
    torch.manual_seed(n)
    x = torch.randn(2, n // 2 + 1, 2)
    check_rule(
        lambda x: torch.fft.irfft(torch.view_as_complex(x), n, norm=norm),
        [x],
        [torch.float32],
        planted_ulp=8192,
        caught=0.6,
    )
    check_rule(
        lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), norm=norm)),
        [x],
        [torch.float32],
        planted_ulp=8192,
        caught=0.6,
    )


@pytest.mark.parametrize("dim", [(0, 1), (1,), (-1, 0)])
def test_transforms_along_several_dimensions_cover_eager_kernels(dim: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    check_rule(pairs(torch.fft.fftn, dim=dim), [torch.randn(3, 4, 2)], [torch.float32], planted_ulp=8192, caught=0.6)
    check_rule(pairs(torch.fft.rfftn, dim=dim), [torch.randn(3, 4, 2)], [torch.float32], planted_ulp=8192, caught=0.6)
