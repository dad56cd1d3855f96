"""Functions of complex numbers: PyTorch's kernels are covered, exact values lie on the right branch, digits count."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.errors import UnsupportedOperation
from kernels_core.reference import reference
from kernels_core.report import Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor
TABLE = torch.polar(torch.ones(5), torch.arange(5.0))


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def written_to(z: Tensor, w: Tensor, t: Tensor) -> Tensor:
    result = z.clone()
    result[:, 0] = 2 * w[:, 1]
    result[1] *= 1j
    return result


FUNCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "quotient": lambda z, w, t: z / w,
    "quotient by a real tensor": lambda z, w, t: z / t,
    "quotient by a number": lambda z, w, t: z / 3,
    "quotient by a complex number": lambda z, w, t: (z - 1j) / (3 - 1j),
    "quotient of a real tensor": lambda z, w, t: t / z,
    "quotient of a number": lambda z, w, t: 2 / z + (1 + 2j) / w,
    "real tensor and complex number": lambda z, w, t: 1j * t + (t + 2j) - (1j - t) + t / (1 + 2j) + 1j / t,
    "sums with numbers": lambda z, w, t: torch.add(z, 0.3, alpha=2) - (0.7 - 0.2j) + torch.rsub(w, 0.1j, alpha=3),
    "sums with real tensors": lambda z, w, t: torch.sub(t, z, alpha=2) + torch.add(w, t, alpha=1.5),
    "exponential of i t": lambda z, w, t: torch.exp(1j * t),
    "power of a number": lambda z, w, t: 2**z,
    "powers": lambda z, w, t: z**-1 + z**3 + t.abs() ** 1j,
    "mean": lambda z, w, t: z.mean(-1),
    "std": lambda z, w, t: z.std(-1),
    "logarithms": lambda z, w, t: torch.log2(z) + torch.log10(w),
    "exp2": lambda z, w, t: torch.exp2(z),
    "expm1": lambda z, w, t: torch.expm1(z),
    "log1p": lambda z, w, t: torch.log1p(z),
    "asinh": lambda z, w, t: torch.asinh(z),
    "acosh": lambda z, w, t: torch.acosh(z),
    "convolution": lambda z, w, t: torch.nn.functional.conv1d(z[None], w[None, :, :3]),
    "table": lambda z, w, t: z * TABLE,
    "written to": written_to,
    "trace": lambda z, w, t: (z @ w.mT).trace(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pytorchs_own_complex_kernel_is_covered(name: str) -> None:
    size = 30 if name in ("convolution", "table", "written to", "trace") else 60
    given = {"z": numbers(size, 5), "w": numbers(size, 5, seed=1), "t": numbers(size, 5, seed=2).real.clone()}
    report = verify(FUNCTIONS[name], given, audit=False)
    assert report.verdict is Verdict.COVERED


def test_inverse_functions_have_the_principal_value_in_all_quadrants() -> None:
    z = torch.tensor(
        [x + 1j * y for x in (-3.0, -0.5, 0.5, 3.0) for y in (-2.0, -0.1, 0.1, 2.0)], dtype=torch.complex128
    )
    for name in ("acosh", "asinh", "atanh", "acos", "asin", "atan", "log", "sqrt"):
        found = reference(getattr(torch, name))(z)
        wanted = torch.tensor([getattr(cmath, name)(value) for value in z.tolist()], dtype=torch.complex128)
        assert torch.allclose(torch.complex(found.real.exact, found.imag.exact), wanted, rtol=1e-12, atol=1e-14), name


@pytest.mark.parametrize(
    ("name", "naive"), [("expm1", lambda z: torch.exp(z) - 1), ("log1p", lambda z: torch.log(1 + z))]
)
def test_digits_lost_beside_one_are_violated(name: str, naive: Callable[[Tensor], Tensor]) -> None:
    z = numbers(200) * 1e-5
    result = reference(getattr(torch, name))(z)
    assert bool(result.covers(getattr(torch, name)(z)).all())
    assert float((result.real.verdict(naive(z).real) == Element.VIOLATED).double().mean()) > 0.9


def smith(z: Tensor, w: Tensor) -> Tensor:
    """Divide by Smith's algorithm, for |c| >= |d|."""
    r = w.imag / w.real
    inverse = 1 / (w.real + w.imag * r)
    return torch.complex((z.real + z.imag * r) * inverse, (z.imag - z.real * r) * inverse)


def scaled(z: Tensor, w: Tensor) -> Tensor:
    """Divide after a multiplication by 1 / max(|c|, |d|), as PyTorch's vectorised kernel does."""
    s = 1 / torch.maximum(w.real.abs(), w.imag.abs())
    a, b, c, d = (part * s for part in (z.real, z.imag, w.real, w.imag))
    under = c * c + d * d
    return torch.complex((a * c + b * d) / under, (b * c - a * d) / under)


def written_out(z: Tensor, w: Tensor) -> Tensor:
    a, b, c, d = z.real, z.imag, w.real, w.imag
    under = c * c + d * d
    return torch.complex((a * c + b * d) / under, (b * c - a * d) / under)


@pytest.mark.parametrize("divide", [smith, scaled, written_out])
@pytest.mark.parametrize("real", [False, True])
def test_every_way_to_divide_is_covered(divide: Callable[[Tensor, Tensor], Tensor], real: bool) -> None:
    z, w = numbers(1000), numbers(1000, seed=1)
    w = w[w.real.abs() >= w.imag.abs()]
    w = w.real.clone() if real else w
    result = reference(lambda z, w: z / w)(z[: len(w)], w)
    assert bool(result.covers(divide(z[: len(w)], torch.complex(w, torch.zeros_like(w)) if real else w)).all())


def test_what_has_no_real_form_is_named_and_so_is_memory_that_lies_otherwise() -> None:
    with pytest.raises(UnsupportedOperation, match=r"linalg_inv_ex.*has no rule\nit has no form in real numbers here$"):
        reference(torch.linalg.inv)(numbers(3, 3))

    def into_a_transposed(z: Tensor) -> Tensor:
        result = z.mT.clone()
        result[2:, 1] = z[1, 2:] ** 2
        return result

    with pytest.raises(UnsupportedOperation, match="contiguous"):
        reference(into_a_transposed).backward(numbers(4, 5), numbers(5, 4))


def test_a_number_keeps_its_digits_beside_a_complex_tensor() -> None:
    z = torch.complex(torch.tensor([-0.5266417, -0.52664185]), torch.zeros(2))
    shifted = reference(lambda z: z + 0.7)
    once = (z.to(torch.complex128) + 0.7).to(torch.complex64)  # 0.7 is no float32 number
    assert bool((once != z + 0.7).any())
    assert bool(shifted(z).covers(once).all())
    assert bool(shifted(z).covers(z + 0.7).all())
