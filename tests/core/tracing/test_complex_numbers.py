"""Complex numbers inside a reference: eager kernels covered, errors caught, what has no real form is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.complex_tensor._core import ComplexTensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_core.errors import TraceError
from kernels_core.reference import reference
from kernels_core.tracing.light_pairs import light_pairs
from tests.core.rules.checker import check_rule

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a / b,
    "matrix product": lambda a, b: a @ b.mT,
    "modulus": lambda a, b: torch.complex((a + b).abs(), b.real),
    "conjugate": lambda a, b: a.conj() * b - b,
    "exponential": lambda a, b: torch.exp(a) + b,
    "parts": lambda a, b: torch.complex(a.imag, b.real),
    "imaginary part of a conjugate": lambda a, b: torch.complex(a.conj().imag, b.real),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_complex_operations_cover_eager_kernels_for_the(name: str) -> None:
    torch.manual_seed(0)

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(FUNCTIONS[name](torch.view_as_complex(a), torch.view_as_complex(b)))

    check_rule(function, [torch.randn(2, 3, 2), torch.randn(2, 3, 2)], [torch.float32], planted_ulp=256, caught=0.8)


def test_a_filter_in_the_frequency_domain_covers_eager_kernels() -> None:
    torch.manual_seed(1)
    check_rule(
        lambda x, h: torch.fft.irfft(torch.fft.rfft(x, 16) * torch.fft.rfft(h, 16), 16)[..., :12],
        [torch.randn(2, 9), torch.randn(4)],
        [torch.float32],
        planted_ulp=8192,
        caught=0.5,
    )


def test_derivatives_that_write_in_place_stand_beside_a_fourier_transform() -> None:
    torch.manual_seed(2)
    check_rule(
        lambda x, y: torch.nn.functional.cosine_similarity(torch.fft.fft(x).real, y, dim=-1),
        [torch.randn(2, 6), torch.randn(2, 6)],
        [torch.float32],
        planted_ulp=1024,
        caught=0.5,
    )


def test_a_complex_operation_without_a_real_form_is_named() -> None:
    x = torch.randn(3, 3, 2)
    with pytest.raises(TraceError, match="linalg"):
        reference(lambda x: torch.view_as_real(torch.linalg.inv(torch.view_as_complex(x))))(x)


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_pair_of_real_tensors_is_made_without_operations() -> None:
    part = torch.ones(2)
    with Seen() as plain:
        ComplexTensor(part, part)
    with light_pairs(), Seen() as light:
        ComplexTensor(part, part)
    assert plain.names
    assert not light.names
    with Seen() as after:
        ComplexTensor(part, part)
    assert after.names == plain.names
