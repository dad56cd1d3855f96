"""Honest kernels of a profile are not suspect under it, those of another arithmetic still are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch

from kernels_core.report import Report, Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor
Read = Callable[[Tensor], Tensor]
NORMAL = torch.finfo(torch.float32).smallest_normal


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def truncated(x: Tensor) -> Tensor:
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def nearest(x: Tensor) -> Tensor:
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def in_bfloat16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).to(x.dtype)


def product(A: Tensor, B: Tensor) -> Tensor:
    return A @ B


def kernel_reading(read: Read) -> type[torch.autograd.Function]:
    """Return a matmul that reads all operands of its three products so."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, A, B):
            ctx.save_for_backward(A, B)
            return read(A) @ read(B)

        @staticmethod
        def backward(ctx, grad):
            A, B = ctx.saved_tensors
            return read(grad) @ read(B).T, read(A).T @ read(grad)

    return Kernel


def checked(read: Read, profile: str, dtype: torch.dtype = torch.float32, inner: int = 200) -> Report:
    given = {"A": seeded(32, inner).to(dtype), "B": seeded(inner, 16, seed=1).to(dtype)}
    return verify(kernel_reading(read), given, reference=product, profile=profile)


@pytest.mark.parametrize("profile", ["tf32", "tensorcore-hopper,matmul_input=tf32", "ieee,matmul_input=tf32"])
@pytest.mark.parametrize("read", [truncated, nearest])
def test_tf32_operands_are_not_suspect_where_they_are_declared(read: Read, profile: str) -> None:
    """Cut operands shrink all products alike; rounded ones are those of float16, which the profile does not name."""
    assert checked(read, profile).verdict is Verdict.COVERED


def test_declared_operands_of_a_float64_product_are_not_suspect() -> None:
    assert checked(in_bfloat16, "ieee,matmul_input=bfloat16", torch.float64).verdict is Verdict.COVERED


def test_bfloat16_operands_are_seen_under_tf32() -> None:
    assert checked(in_bfloat16, "tf32", inner=2000).verdict in (Verdict.SUSPECT, Verdict.VIOLATED)


def test_float16_operands_are_seen_under_bfloat16_convolutions() -> None:
    """`convolution_input` declares nothing for a product."""
    with _convolutions_in("bf16"):
        assert checked(nearest, "auto", inner=2000).verdict in (Verdict.SUSPECT, Verdict.VIOLATED)


@contextlib.contextmanager
def _convolutions_in(precision: str) -> Iterator[None]:
    before = torch.backends.mkldnn.conv.fp32_precision  # type: ignore[attr-defined]
    torch.backends.mkldnn.conv.fp32_precision = precision  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.backends.mkldnn.conv.fp32_precision = before  # type: ignore[attr-defined]


def test_a_convolution_in_the_format_of_pytorchs_flag_is_not_suspect() -> None:
    x, weight = seeded(2, 8, 12, 12), seeded(8, 8, 3, 3, seed=1)
    kernel = lambda x, weight: torch.conv2d(in_bfloat16(x), in_bfloat16(weight))  # noqa: E731
    with _convolutions_in("bf16"):
        report = verify(kernel, {"x": x, "weight": weight}, reference=torch.conv2d, profile="auto", wrt=[])
    assert report.row("output").verdict is Verdict.COVERED


def flushed(x: Tensor) -> Tensor:
    return torch.where(x.abs() < NORMAL, 0.0, x)


def flushing_sum(x: Tensor) -> Tensor:
    total = torch.zeros(len(x))
    for column in x.unbind(1):
        total = flushed(total + flushed(column))
    return total


def test_a_sum_that_flushes_is_not_suspect_where_it_may() -> None:
    kernel = lambda x: flushing_sum(x)  # noqa: E731
    report = verify(kernel, {"x": seeded(64, 50) * 1e-38}, reference=lambda x: x.sum(-1), profile="amx", wrt=[])
    assert report.verdict is Verdict.COVERED


def test_a_kernel_that_reads_subnormal_inputs_as_zero_is_not_suspect_where_it_may() -> None:
    kernel = lambda x: flushed(x) * 1e30  # noqa: E731
    report = verify(kernel, {"x": seeded(200) * 1e-40}, reference=lambda x: x * 1e30, profile="amx", wrt=[])
    assert report.verdict is Verdict.COVERED
