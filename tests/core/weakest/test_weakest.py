"""A violated kernel is told the least generous arithmetic that would cover it, and a wrong one that none would."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import exactref as er
from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.profiles import resolve
from kernels_core.reference import reference
from kernels_core.report import Consistency
from kernels_core.weakest import Violation, weakest
from kernels_core.weakest.candidates import candidates
from tests.core.profiles import simulated

Tensor = torch.Tensor
Kernel = Callable[[Tensor, Tensor], Tensor]
ROWS = 24

product = reference(lambda a, b: torch.bmm(a, b), name="product")
matmul = reference(lambda a, b: a @ b, name="matmul")


def found(plain: er.Reference, profile: str, actual: Tensor, **inputs: Tensor) -> Consistency:
    """What a kernel that returned `actual` is consistent with; it must be violated under the profile."""
    check = Check(plain, inputs, profile=profile)
    failing = check.outputs()["output"].verdict(actual) == Element.VIOLATED
    assert bool(failing.any())
    (consistency,) = weakest(check, None, {"output": Violation(actual, failing)}, cost=0.0)
    return consistency


def operands(inner: int, *, positive: bool = False, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(inner)
    draw = torch.rand if positive else torch.randn
    return draw((ROWS, inner), generator=generator).to(dtype), draw((inner, ROWS), generator=generator).to(dtype)


def tf32(x: Tensor) -> Tensor:
    return torch.from_numpy(simulated.tf32(x.numpy())).float()


def terms(a: Tensor, b: Tensor) -> np.ndarray:
    """The products of each result, one result a row."""
    return (a[:, None, :].double() * b.mT[None].double()).reshape(-1, a.shape[1]).numpy()


def accumulated(dtype: str) -> Kernel:
    def kernel(a: Tensor, b: Tensor) -> Tensor:
        if dtype == "float16":
            return torch.from_numpy(simulated.sequential(terms(a, b), dtype)).float().view(len(a), -1)
        total = torch.zeros((len(a), b.shape[1]), dtype=torch.bfloat16)
        for k in range(a.shape[1]):
            total = total + (a[:, k, None] * b[k]).bfloat16()
        return total.float()

    return kernel


def blocks(n: int, fraction: int, output: int, promote: int = 0) -> Kernel:
    """Chains of truncating instructions."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        left, right = (x.double().numpy() for x in (a, b.mT))
        left, right = left.repeat(len(right), 0), np.tile(right, (len(left), 1))
        numbers = {"fraction": fraction, "output": output, "smallest": -14}
        if promote:
            result = simulated.chains(left, right, n, promote, **numbers)
        else:
            result = simulated.chain(left, right, np.zeros(len(left)), n, **numbers)
        return torch.from_numpy(result).float().view(len(a), -1)

    return kernel


def one_operand(a: Tensor, b: Tensor) -> Tensor:
    return tf32(a) @ b


def both_operands(a: Tensor, b: Tensor) -> Tensor:
    return tf32(a) @ tf32(b)


DOES: list[tuple[str, str, Kernel, dict[str, object]]] = [
    ("tf32 inputs", "ieee", both_operands, {"inner": 256}),
    ("tf32 inputs", "ieee", one_operand, {"inner": 256}),
    ("tf32 inputs and tensor-core accumulation", "cuda", both_operands, {"inner": 40, "positive": True}),
    ("float16 inputs", "ieee", lambda a, b: a.half().float() @ b.half().float(), {"inner": 128}),
    ("bfloat16 inputs", "ieee", lambda a, b: a.bfloat16().float() @ b.bfloat16().float(), {"inner": 256}),
    ("bfloat16 inputs", "tf32", lambda a, b: a.bfloat16().float() @ b.bfloat16().float(), {"inner": 8}),
    ("float16 accumulation", "ieee", accumulated("float16"), {"inner": 200}),
    ("float16 accumulation", "ieee", accumulated("float16"), {"inner": 1000, "positive": True}),
    ("bfloat16 accumulation", "ieee", accumulated("bfloat16"), {"inner": 24}),
    ("13-bit accumulation", "ieee", blocks(32, 13, 13), {"inner": 1024, "positive": True}),
    ("13-bit accumulation, promoted to float32", "ieee", blocks(32, 13, 13, 128), {"inner": 2048, "positive": True}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "profile", "kernel", "data"),
    DOES,
    ids=[f"{case[0]} of {case[1]} {number}" for number, case in enumerate(DOES)],
)
def test_arithmetic_of_a_product_is_named(words: str, profile: str, kernel: Kernel, data: dict[str, object]) -> None:
    a, b = operands(**data)  # type: ignore[arg-type]
    if "13-bit" in words:
        a, b = (x.to(torch.float8_e4m3fn).float() for x in (a, b))
    line = found(matmul, profile, kernel(a, b), a=a, b=b)
    assert line.text == f"consistent with {words}"
    declared = resolve(line.profiles[0])
    assert bool(Check(matmul, {"a": a, "b": b}, profile=declared).outputs()["output"].covers(kernel(a, b)).all())


def test_split_inner_dimension_is_named() -> None:
    a, b = operands(512, positive=True, dtype=torch.bfloat16)
    parts = [(a[:, k : k + 64].float() @ b[k : k + 64].float()).bfloat16().float() for k in range(0, 512, 64)]
    line = found(matmul, "ieee", torch.stack(parts).sum(0).bfloat16(), a=a, b=b)
    assert line.text == "consistent with a split inner dimension (2 parts)"


def test_flushed_subnormals_are_named() -> None:
    generator = np.random.default_rng(0)
    scale = 2.0 ** generator.integers(-140, -100, (16, 16))
    a, b = (torch.from_numpy((generator.standard_normal((16, 16)) * scale).astype(np.float32)) for _ in range(2))
    exact = a - b
    actual = torch.where(exact.abs() < torch.finfo(torch.float32).smallest_normal, 0.0, exact)
    difference = reference(lambda a, b: a - b, name="difference")
    assert found(difference, "ieee", actual, a=a, b=b).text == "consistent with subnormals flushed"
    turned = torch.where(exact.abs() < torch.finfo(torch.float32).smallest_normal, -exact, exact)
    assert not found(difference, "ieee", turned, a=a, b=b).profiles


def test_exponential_of_triton_is_named() -> None:
    x = torch.linspace(-80, 80, 400)
    actual = torch.exp2((x * np.float32(1.4426950408889634)).double()).float()
    exponential = reference(lambda x: torch.exp(x), name="exponential")
    assert found(exponential, "ieee", actual, x=x).text == "consistent with Triton's division and exponential"


def test_order_that_was_declared_too_narrowly_is_named() -> None:
    x = torch.full((32, 1 << 14), 0.1) + torch.arange(32)[:, None] / 64
    actual = torch.from_numpy(simulated.sequential(x.numpy(), "float32")).float()
    total = reference(lambda x: x.sum(-1), name="total")
    assert found(total, "ieee,order=pairwise", actual, x=x).text == "consistent with sums in any order"


def damaged(name: str, a: Tensor, b: Tensor) -> Tensor:
    exact = (a.double() @ b.double()).to(a.dtype)
    if name == "sign":
        return -exact
    if name == "zero":
        return torch.zeros_like(exact)
    if name == "factor":
        return exact * 1.01
    if name == "term":
        k = a.shape[1] // 2
        return (a.double() @ b.double() - a[:, k, None].double() * b[k].double()).to(a.dtype)
    exact[3, 5] *= 1 + 2.0**-8  # one element
    return exact


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("inner", [1, 64, 1000])
@pytest.mark.parametrize("name", ["sign", "zero", "factor", "term", "element"])
def test_plain_wrong_product_is_consistent_with_none(name: str, inner: int, positive: bool) -> None:
    a, b = operands(inner, positive=positive)
    line = found(matmul, "ieee", damaged(name, a, b), a=a, b=b)
    assert not line.profiles
    assert line.text.startswith("consistent with none of the arithmetic profiles")


def test_arithmetic_that_would_cover_zeros_as_well_is_not_named() -> None:
    a, b = operands(2000)
    line = found(matmul, "ieee", accumulated("float16")(a, b), a=a, b=b)
    assert line.text.endswith("that means anything: float16 accumulation would cover zeros as well")


@pytest.mark.parametrize("profile", ["ieee", "cuda", "tf32", "triton,split_k=2", "amx,order=pairwise"])
def test_every_candidate_can_be_declared_as_it_is_named(profile: str) -> None:
    for candidate in candidates(resolve(profile)):
        assert resolve(candidate.profile.title) == candidate.profile


def test_report_names_the_arithmetic_of_all_violated_tensors() -> None:
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, grad):
            a, b = (x.bfloat16().float().numpy() for x in ctx.saved_tensors)
            grad = grad.bfloat16().float().numpy()
            return torch.from_numpy(grad @ b.T), torch.from_numpy(a.T @ grad)

    report = er.check(Rounded, operands(64), reference=matmul, profile="ieee")
    (line,) = report.consistent
    assert line == Consistency(("grad_a", "grad_b"), ("ieee,matmul_input=bfloat16",), "consistent with bfloat16 inputs")


def test_values_that_are_explained_otherwise_are_asked_for_no_arithmetic() -> None:
    report = er.check(lambda a, b: -1.0 * (a @ b), operands(64), reference=matmul, profile="ieee")
    assert report.row("output").failure.diagnosis
    assert report.consistent == ()


def test_search_that_would_take_too_long_says_so() -> None:
    a, b = operands(8)
    (line,) = weakest(Check(matmul, {"a": a, "b": b}), None, {"output": Violation(a @ b, (a @ b) > 0)}, cost=3.0)
    assert line.text == "profiles not tried: each would take 3 s"
    assert not line.decided
