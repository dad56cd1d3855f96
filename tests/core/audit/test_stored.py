"""Results that were rounded to a narrower format are suspect; results whose reference goes through it are not."""

from __future__ import annotations

import pytest
import torch

from kernels_core.report import TensorReport, Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor


def row_of(kernel, reference, **inputs: Tensor) -> TensorReport:
    (row,) = verify(kernel, inputs, reference=reference, wrt=[]).tensors
    return row


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def test_stored_names_the_format_of_results_rounded_inside_a_long_sum() -> None:
    a, b = normal(16, 4096).half(), normal(4096, 16, seed=1).half()
    row = row_of(lambda a, b: (a @ b).bfloat16().half(), product, a=a, b=b)
    assert row.verdict is Verdict.SUSPECT
    assert row.precision is not None
    assert row.precision.stored_in == "bfloat16"
    assert "every result is a value of bfloat16" in row.note


def test_stored_needs_64_results_that_differ() -> None:
    a, b = normal(7, 4096).half(), normal(4096, 9, seed=1).half()
    row = row_of(lambda a, b: (a @ b).bfloat16().half(), product, a=a, b=b)
    assert row.precision is not None
    assert row.precision.stored_in == ""


def test_stored_leaves_a_kernel_alone_whose_reference_rounds_too() -> None:
    def rounded(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).bfloat16().float()

    row = row_of(lambda a, b: rounded(a, b), rounded, a=normal(16, 64), b=normal(64, 16, seed=1))
    assert row.verdict is Verdict.COVERED
    assert row.precision is not None
    assert row.precision.stored_in == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_stored_leaves_results_alone_that_are_exact_in_the_narrower_format(dtype: torch.dtype) -> None:
    """Products of small integers: at most 16 * 49, in steps of one."""
    a, b = (torch.randint(-7, 8, (16, 16), generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (0, 1))
    row = row_of(lambda a, b: (b.mT @ a.mT).mT.contiguous(), product, a=a, b=b)
    assert row.verdict is Verdict.COVERED


@pytest.mark.parametrize("order", ["lanes", "pairwise", "by sign"])
def test_stored_leaves_sums_alone_that_cancel(order: str) -> None:
    """h and -h (1 + 1e-6): what is left is a multiple of the last place of partial sums, of few digits."""
    h = normal(128, 300)[:, :150]
    x = torch.cat([h, -h * (1 + 1e-6)], -1)

    def added(x: Tensor) -> Tensor:
        if order == "by sign":
            return _one_by_one(x.sort(-1).values)
        if order == "lanes":
            x = _one_by_one(torch.nn.functional.pad(x, (0, 20)).reshape(128, 10, 32).mT)
        while x.shape[-1] > 1:
            x = torch.nn.functional.pad(x, (0, x.shape[-1] % 2))
            x = x[..., 0::2] + x[..., 1::2]
        return x[..., 0]

    row = row_of(added, lambda x: x.sum(-1), x=x)
    assert row.verdict is Verdict.COVERED


def _one_by_one(x: Tensor) -> Tensor:
    total = x[..., 0]
    for k in range(1, x.shape[-1]):
        total = total + x[..., k]
    return total
