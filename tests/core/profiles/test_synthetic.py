"""Two synthetic accumulators at K = 4096: violated except under profiles that declare them.

The values are nearly equal, as those of a mean or of a bias gradient are: sums of float16 stop growing at 2048.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import exactref as er
from kernels_core.profiles import PROFILES
from kernels_core.report import TensorReport, Verdict
from tests.core.profiles import simulated

Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
K, M, N = 4096, 12, 12


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Values that both float16 and, cut to 3 bits, float8 have; nearly equal."""
    generator = np.random.default_rng(0)
    a, b = 1 + generator.integers(0, 2, (2, M, K)) / 8
    return torch.from_numpy(a).float(), torch.from_numpy(b).float().mT.contiguous()


def rows(a: torch.Tensor, b: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """One row and one column for each element of the product."""
    left = a.double().numpy()[:, None, :].repeat(N, 1).reshape(M * N, K)
    return left, b.mT.double().numpy()[None].repeat(M, 0).reshape(M * N, K)


def float16_accumulator(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    left, right = rows(a, b)
    return torch.from_numpy(simulated.sequential(left * right, "float16")).float().view(M, N)


def accumulator_of_13_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    left, right = rows(a, b)
    found = simulated.chain(left, right, np.zeros(M * N), 32, fraction=13, output=13, smallest=-6)
    return torch.from_numpy(found).float().view(M, N)


def checked(kernel: Kernel, a: torch.Tensor, b: torch.Tensor, profile: str) -> TensorReport:
    def differentiable(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return kernel(a.detach(), b.detach()) + 0 * (a @ b)

    return er.check(differentiable, (a, b), reference=er.matmul, profile=profile, diagnose=False).row("output")


def verdict(kernel: Kernel, profile: str) -> Verdict:
    return checked(kernel, *operands(), profile).verdict


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "fp8-fast"])
def test_float16_accumulator_is_rejected_by_every_profile_but_the_one_of_as_few_bits(profile: str) -> None:
    assert verdict(float16_accumulator, profile) is Verdict.VIOLATED


def test_float16_accumulator_lies_within_what_13_truncated_bits_may_lose() -> None:
    assert verdict(float16_accumulator, "fp8-fast") is Verdict.COVERED


@pytest.mark.parametrize("profile", ["ieee,accumulate=float16", "cuda,accumulate=float16"])
def test_float16_accumulator_is_accepted_where_it_is_declared(profile: str) -> None:
    assert verdict(float16_accumulator, profile) in (Verdict.COVERED, Verdict.UNCONSTRAINED)


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "fp8-fast"])
def test_accumulator_of_13_bits_is_rejected_by_every_profile_that_does_not_declare_it(profile: str) -> None:
    assert verdict(accumulator_of_13_bits, profile) is Verdict.VIOLATED


def test_accumulator_of_13_bits_is_accepted_where_it_is_declared() -> None:
    assert verdict(accumulator_of_13_bits, "fp8-fast") is Verdict.COVERED


def tf32_operands(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    left, right = (torch.from_numpy(simulated.tf32(x.numpy())).float() for x in (a, b))
    return left @ right


def bfloat16_operands(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.bfloat16().float() @ b.bfloat16().float()


HONEST = [
    ("tf32", tf32_operands),
    ("ieee,matmul_input=bfloat16", bfloat16_operands),
    ("ieee,accumulate=float16", float16_accumulator),
    ("fp8-fast", accumulator_of_13_bits),
]


@pytest.mark.parametrize(("profile", "kernel"), HONEST, ids=[name for name, _ in HONEST])
def test_honest_kernel_of_a_profile_is_not_suspect_under_it(profile: str, kernel: Kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand((M, K), generator=generator), torch.rand((K, N), generator=generator)
    if profile == "fp8-fast":
        a, b = (x.to(torch.float8_e4m3fn).float() for x in (a, b))
    found = checked(kernel, a, b, profile)
    assert found.verdict in (Verdict.COVERED, Verdict.UNCONSTRAINED)
    assert not found.note


@pytest.mark.parametrize(("declared", "kernel"), HONEST, ids=[name for name, _ in HONEST])
def test_kernel_of_another_profile_is_no_honest_one_of_ieee(declared: str, kernel: Kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand((M, K), generator=generator), torch.rand((K, N), generator=generator)
    assert checked(kernel, a, b, "ieee").verdict in (Verdict.VIOLATED, Verdict.SUSPECT)
