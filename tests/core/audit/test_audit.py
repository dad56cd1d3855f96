"""The precision audit: lower precision inside a long sum is suspect, honest orders of summation never are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from kernels_core.audit import fingerprint, legal
from kernels_core.audit.sample import LIMIT, Sample, spread
from kernels_core.enclosure import Enclosure
from kernels_core.program import Meta
from kernels_core.reference import Result
from kernels_core.report import Precision, Verdict
from kernels_core.verify import summary, verify

Tensor = torch.Tensor
Product = Callable[[Tensor, Tensor], Tensor]
K = 4096


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def product(A: Tensor, B: Tensor) -> Tensor:
    return A @ B


def kernel_with(multiply: Product) -> type[torch.autograd.Function]:
    """Return a matmul whose grad_A is formed by `multiply`."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, A, B):
            ctx.save_for_backward(A, B)
            return A @ B

        @staticmethod
        def backward(ctx, grad):
            A, B = ctx.saved_tensors
            return multiply(grad, B.T), A.T @ grad

    return Kernel


def terms(a: Tensor, b: Tensor) -> np.ndarray:
    return (a[:, None, :] * b.T[None]).numpy()


def sequential(a: Tensor, b: Tensor) -> Tensor:
    return torch.from_numpy(np.add.accumulate(terms(a, b), axis=2)[..., -1].copy())


def descending(a: Tensor, b: Tensor) -> Tensor:
    return sequential(a.flip(1), b.flip(0))


def pairwise(a: Tensor, b: Tensor) -> Tensor:
    t = terms(a, b)
    while t.shape[2] > 1:
        t = t[..., 0::2] + t[..., 1::2]
    return torch.from_numpy(t[..., 0].copy())


def split_k(a: Tensor, b: Tensor) -> Tensor:
    return sum((x @ y for x, y in zip(a.chunk(8, 1), b.chunk(8, 0), strict=True)), torch.zeros(()))


def fused(a: Tensor, b: Tensor) -> Tensor:
    t, total = a.double()[:, None, :] * b.double().T[None], torch.zeros(len(a), b.shape[1])
    for k in range(t.shape[2]):
        total = (total.double() + t[..., k]).float()
    return total


def lanes(a: Tensor, b: Tensor) -> Tensor:
    t = terms(a, b).reshape(len(a), b.shape[1], -1, 8)
    return torch.from_numpy(np.add.accumulate(t, axis=2)[..., -1, :].sum(-1))


def in_format(name: str) -> Product:
    rounded = fingerprint.FORMATS[name]
    return lambda a, b: rounded(a) @ rounded(b)


DATA = {
    "normal": seeded,
    "positive": uniform,
    "constant": lambda *shape, seed=0: torch.full(shape, 0.1),
    "integers": lambda *shape, seed=0: torch.randint(-3, 4, shape).float(),
    "zeros": lambda *shape, seed=0: torch.zeros(shape),
}


def verdict_of(multiply: Product, data: Callable[..., Tensor], rows: int = 8, columns: int = 8) -> Verdict:
    inputs = {"A": data(rows, columns, seed=1), "B": data(columns, K, seed=2)}
    report = verify(kernel_with(multiply), inputs, reference=product, grads=[data(rows, K, seed=3)])
    return report.row("grad_A").verdict


@pytest.mark.parametrize("data", ["normal", "positive"])
@pytest.mark.parametrize("name", list(fingerprint.FORMATS))
def test_backward_in_lower_precision_is_suspect_or_violated(name: str, data: str) -> None:
    assert verdict_of(in_format(name), DATA[data], 16, 16) in (Verdict.SUSPECT, Verdict.VIOLATED)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("multiply", [sequential, descending, pairwise, split_k, fused, lanes])
def test_honest_orders_are_covered(multiply: Product, data: str) -> None:
    assert verdict_of(multiply, DATA[data]) is Verdict.COVERED


@pytest.mark.parametrize("value", [0.3, 0.7, 0.11])
def test_equal_elements_that_err_alike_are_one_coincidence_and_no_fingerprint(value: float) -> None:
    actual = torch.full((100,), 1.0 + 2.0**-12)
    enclosure = Enclosure(torch.ones(100, dtype=torch.float64) + 1e-17, torch.full((100,), value).double())
    sample = Sample.of(Result("x", Meta((100,), torch.float32), enclosure, 0.0, None), actual)
    assert sample is not None
    assert not fingerprint.explains(sample, actual)


@pytest.mark.parametrize("seed", range(20))
def test_single_element_is_never_suspect(seed: int) -> None:
    inputs = {"A": uniform(1, 1, seed=seed), "B": uniform(1, K, seed=seed + 100)}
    report = verify(kernel_with(sequential), inputs, reference=product, grads=[uniform(1, K, seed=seed + 200)])
    assert report.row("grad_A").verdict is Verdict.COVERED


def test_suspect_kernel_is_no_pass_and_says_why() -> None:
    inputs = {"A": seeded(16, 16), "B": seeded(16, K)}
    report = verify(kernel_with(in_format("float16")), inputs, reference=product)
    precision = report.row("grad_A").precision
    assert (report.verdict, bool(report)) == (Verdict.SUSPECT, False)
    assert precision is not None
    assert precision.bits_lost > 5
    assert "less precise than the reference" in summary(report)
    assert report.row("grad_B").verdict is Verdict.COVERED


def test_audit_can_be_left_out() -> None:
    inputs = {"A": seeded(16, 16), "B": seeded(16, K)}
    report = verify(kernel_with(in_format("float16")), inputs, reference=product, audit=False)
    assert (report.verdict, report.row("grad_A").precision) == (Verdict.COVERED, None)


def test_more_accurate_kernel_loses_nothing() -> None:
    inputs = {"A": seeded(16, 16), "B": seeded(16, K)}
    report = verify(kernel_with(lambda a, b: (a.double() @ b.double()).float()), inputs, reference=product)
    precision = report.row("grad_A").precision
    assert precision is not None
    assert precision.bits_lost < 0


def exp2_softmax(x: Tensor) -> Tensor:
    scaled = x * 1.4426950408889634
    power = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
    return power / power.sum(-1, keepdim=True)


def online_softmax(x: Tensor) -> Tensor:
    top, total = torch.full(x.shape[:-1], -torch.inf), torch.zeros(x.shape[:-1])
    for part in x.split(16, -1):
        higher = torch.maximum(top, part.amax(-1))
        total = total * torch.exp(top - higher) + torch.exp(part - higher.unsqueeze(-1)).sum(-1)
        top = higher
    return torch.exp(x - top.unsqueeze(-1)) / total.unsqueeze(-1)


@pytest.mark.parametrize("kernel", [exp2_softmax, online_softmax])
@pytest.mark.parametrize("shape", [(1, 16), (8, 1024)])
def test_other_softmax_algorithms_are_covered(kernel: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    report = verify(kernel, {"x": seeded(*shape)}, reference=lambda x: torch.softmax(x, -1))
    assert report.verdict is Verdict.COVERED


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_native_kernels_of_other_formats_are_covered(dtype: torch.dtype) -> None:
    def wide(A: Tensor, B: Tensor) -> Tensor:
        return (A.float() @ B.float()).to(A.dtype) if A.dtype.itemsize < 4 else A @ B

    inputs = {"A": seeded(8, 64).to(dtype), "B": seeded(64, 8).to(dtype)}
    assert verify(product, inputs, reference=wide).verdict is Verdict.COVERED


def test_float32_inside_a_float64_kernel_is_no_pass() -> None:
    inputs = {"A": seeded(8, 16).double(), "B": seeded(16, K).double()}
    report = verify(kernel_with(lambda a, b: (a.float() @ b.float()).double()), inputs, reference=product)
    assert report.row("grad_A").verdict in (Verdict.SUSPECT, Verdict.VIOLATED)


def test_infinities_and_nan_are_no_part_of_the_audit() -> None:
    A = seeded(4, 4)
    A[0, 0], A[1, 1] = torch.inf, torch.nan
    report = verify(product, {"A": A, "B": seeded(4, 4)}, reference=product)
    precision = report.row("output").precision
    assert (report.verdict, precision is not None and precision.elements) == (Verdict.COVERED, 8)


def test_precision_is_suspect_from_five_bits_or_by_its_fingerprint() -> None:
    assert not Precision(1, 1.0, 0.0, 1.0, None, 5.0).suspect
    assert Precision(1, 1.0, 0.0, 1.0, None, 5.1).suspect
    assert Precision(1, 1.0, 0.0, 1.0, None, 2.5, works_in="tf32").suspect


def test_sample_meets_every_row_and_column() -> None:
    index = spread(1024 * 1024, torch.device("cpu"))
    assert len(index.unique()) == LIMIT
    assert len((index // 1024).unique()) == 1024
    assert len((index % 1024).unique()) == 1024


def test_few_elements_are_drawn_more_often() -> None:
    assert [legal.replicates(count) for count in (1, 100, 10**6)] == [32, 11, 2]


def test_audit_compares_with_legal_runs_where_native_shows_a_loss() -> None:
    """A softmax by its logsumexp rounds |lse|, which PyTorch's does not: native alone would say 5 bits."""
    x = seeded(6, 21, seed=314) + 100
    reference = lambda x: torch.softmax(x, -1)  # noqa: E731
    report = verify(lambda x: torch.exp(x - torch.logsumexp(x, -1, True)), {"x": x}, reference=reference)
    for row in report.tensors:
        assert row.precision is not None
        assert row.precision.bits_lost < 1
        assert row.precision.legal_rms is not None
        assert row.precision.native_rms * 8 < row.precision.legal_rms


def in_sequence(x: Tensor) -> Tensor:
    return torch.from_numpy(np.add.accumulate(x.numpy(), axis=0)[-1].copy())


@pytest.mark.parametrize(("terms", "sums", "place", "shift"), [
    (1 << 16, 24, 1, lambda k: 3.0),
    (1 << 15, 48, 4, lambda k: 3.0 - 6.0 * (k < 1 << 14)),
])  # fmt: skip
def test_one_sum_of_another_kind_than_the_sampled_ones_is_covered_in_sequence(
    terms: int, sums: int, place: int, shift: Callable[[Tensor], Tensor]
) -> None:
    """Its partial sums grow like k where those of the centred ones grow like sqrt(k)."""
    x = seeded(terms, sums)
    x[:, place] += shift(torch.arange(terms))
    (row,) = verify(in_sequence, {"x": x}, reference=lambda x: x.sum(0), wrt=[]).tensors
    assert row.verdict is Verdict.COVERED, row.note


@pytest.mark.parametrize("shift", [lambda k: 3.0, lambda k: 3.0 - 6.0 * (k < 1 << 13)])
def test_one_result_of_a_product_with_one_sign_is_covered_in_sequence(shift: Callable[[Tensor], Tensor]) -> None:
    a, b = seeded(32, 1 << 14), seeded(1 << 14, 32, seed=1)
    a[7] += 3
    b[:, 9] += shift(torch.arange(1 << 14))

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.stack([in_sequence(a.T * b[:, n : n + 1]) for n in range(32)], 1)

    (row,) = verify(kernel, {"a": a, "b": b}, reference=lambda a, b: a @ b, wrt=[]).tensors
    assert row.verdict is Verdict.COVERED, row.note
