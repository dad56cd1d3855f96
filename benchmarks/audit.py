"""The margins of the precision audit: bits lost by honest kernels and by kernels of lower precision, over many seeds.

    python -m benchmarks.audit [--seeds N] [--large]
    python -m benchmarks.audit --cost

Every seed draws the inputs, their family and their shape; every kernel is verified on them. Honest kernels (sequential,
descending, pairwise, blocked and split sums, lanes, fused multiply-adds, online softmax, exp2-based exponentials, one
or more of each) must be covered; kernels that read float16, bfloat16 or TF32 operands in their float32 products of
K = 4096, one seed in five, must be violated or suspect. Prints the distribution of bits lost; returns 1 where a kernel
is on the wrong side.

With --cost: what audit and sensitivity add to the CPU time of a verification; returns 1 where that is more than 30 %.
"""

from __future__ import annotations

import argparse
import collections
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.cost import CASES, Case, seconds
from kernels_core.audit import fingerprint
from kernels_core.report import SUSPECT_BITS, TensorReport, Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor
Kernel = Callable[..., Tensor]
MOST_ADDED = 0.3  # of the time of a check, by audit and sensitivity

FAMILIES: Mapping[str, Callable[[torch.Generator, tuple[int, ...]], Tensor]] = {
    "normal": lambda g, shape: torch.randn(shape, generator=g),
    "positive": lambda g, shape: torch.rand(shape, generator=g),
    "scaled": lambda g, shape: torch.randn(shape, generator=g) * torch.exp(4 * torch.randn(shape[:1], generator=g))[
        (...,) + (None,) * (len(shape) - 1)
    ],
    "integers": lambda g, shape: torch.randint(-8, 9, shape, generator=g).float(),
    "constant": lambda g, shape: torch.full(shape, float(torch.rand((), generator=g))),
    "sparse": lambda g, shape: torch.randn(shape, generator=g) * (torch.rand(shape, generator=g) < 0.1),
    "shifted": lambda g, shape: torch.randn(shape, generator=g) + 100,
}  # fmt: skip


def _terms(a: Tensor, b: Tensor) -> np.ndarray:
    return (a[:, None, :] * b.T[None]).numpy()


def _last(terms: np.ndarray) -> Tensor:
    return torch.from_numpy(np.add.accumulate(terms, axis=-1)[..., -1].copy())


def pairwise(terms: np.ndarray) -> np.ndarray:
    """Sum over the last axis in a binary tree."""
    while terms.shape[-1] > 1:
        odd = terms[..., -1:] if terms.shape[-1] % 2 else terms[..., :0]
        even = terms.shape[-1] // 2 * 2
        terms = np.concatenate([terms[..., 0:even:2] + terms[..., 1:even:2], odd], -1)
    return terms[..., 0]


def blocked(terms: np.ndarray, size: int) -> Tensor:
    """Sum blocks one after the other, then the blocks."""
    parts = [np.add.accumulate(terms[..., i : i + size], axis=-1)[..., -1] for i in range(0, terms.shape[-1], size)]
    return _last(np.stack(parts, -1))


def fused(a: Tensor, b: Tensor) -> Tensor:
    """Sum with one rounding per multiply-add."""
    terms, total = a.double()[:, None, :] * b.double().T[None], torch.zeros(len(a), b.shape[1])
    for k in range(terms.shape[-1]):
        total = (total.double() + terms[..., k]).float()
    return total


PRODUCTS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "native": torch.mm,
    "sequential": lambda a, b: _last(_terms(a, b)),
    "descending": lambda a, b: _last(_terms(a, b)[..., ::-1]),
    "pairwise": lambda a, b: torch.from_numpy(pairwise(_terms(a, b)).copy()),
    "blocked": lambda a, b: blocked(_terms(a, b), 64),
    "split-K": lambda a, b: sum((x @ y for x, y in zip(a.chunk(4, 1), b.chunk(4, 0), strict=True)), torch.zeros(())),
    "lanes": lambda a, b: sum((_last(_terms(a[:, i::8], b[i::8])) for i in range(min(8, a.shape[1]))), torch.zeros(())),
    "fused": fused,
}
LOWER: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    name: lambda a, b, rounded=rounded: rounded(a) @ rounded(b) for name, rounded in fingerprint.FORMATS.items()
} | {"float16 out": lambda a, b: (a.half() @ b.half()).float()}


def matmul_with(multiply: Callable[[Tensor, Tensor], Tensor]) -> type[torch.autograd.Function]:
    """Return a matmul that forms output and gradients by `multiply`."""

    class Matmul(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return multiply(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return multiply(grad, b.T), multiply(a.T, grad)

    return Matmul


def online_softmax(x: Tensor) -> Tensor:
    """Softmax in one streaming pass with rescaling."""
    top, total = torch.full(x.shape[:-1], -torch.inf), torch.zeros(x.shape[:-1])
    for part in x.split(16, -1):
        higher = torch.maximum(top, part.amax(-1))
        total = total * torch.exp(top - higher) + torch.exp(part - higher.unsqueeze(-1)).sum(-1)
        top = higher
    return torch.exp(x - top.unsqueeze(-1)) / total.unsqueeze(-1)


def exp2_softmax(x: Tensor) -> Tensor:
    """Softmax by exp2 of scaled values, as Triton's exp computes."""
    power = torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
    return power / power.sum(-1, keepdim=True)


def exp2_silu(x: Tensor) -> Tensor:
    """SiLU by exp2; the product with log2 e errs by u |x|, within the granted accuracy of exp for small x only."""
    return x / (1 + torch.exp2(-1.4426950408889634 * x))


def logsumexp_softmax(x: Tensor) -> Tensor:
    """Softmax from the stored logsumexp."""
    return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))


def sequential_sum(x: Tensor) -> Tensor:
    """Sum the first dimension strictly in order."""

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.rows = len(x)
            return torch.from_numpy(np.add.accumulate(x.numpy(), axis=0)[-1].copy())

        @staticmethod
        def backward(ctx, grad):
            return grad.expand(ctx.rows, *grad.shape)

    return Sum.apply(x)


ROWWISE: Mapping[str, tuple[Kernel, Kernel]] = {
    "softmax online": (online_softmax, lambda x: torch.softmax(x, -1)),
    "softmax exp2": (exp2_softmax, lambda x: torch.softmax(x, -1)),
    "softmax logsumexp": (logsumexp_softmax, lambda x: torch.softmax(x, -1)),
    "silu exp2": (lambda x: exp2_silu(x.clamp(-4, 4)), lambda x: torch.nn.functional.silu(x.clamp(-4, 4))),
    "sum sequential": (sequential_sum, lambda x: x.sum(0)),
    "sum of squares": (lambda x: sequential_sum(x * x), lambda x: (x * x).sum(0)),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),) * 2,
}


class Record:
    """Bits lost by kernel, and the verdicts."""

    def __init__(self) -> None:
        """Start empty."""
        self.bits: dict[str, list[float]] = collections.defaultdict(list)
        self.verdicts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.wrong: list[str] = []

    def take(self, kernel: str, row: TensorReport, honest: bool, where: str) -> None:
        """Take in one row."""
        self.verdicts[kernel][row.verdict.value] += 1
        if row.precision is not None and math.isfinite(row.precision.bits_lost):
            self.bits[kernel].append(row.precision.bits_lost)
        fine = row.verdict in ((Verdict.COVERED,) if honest else (Verdict.SUSPECT, Verdict.VIOLATED))
        if not fine:
            self.wrong.append(f"{kernel}: {row.name} {row.verdict.value}, {row.precision}, {where}")

    def show(self) -> None:
        """Print quantiles of the bits lost by kernel."""
        print(f"{'kernel':<20}{'tensors':>8}{'5 %':>8}{'median':>8}{'95 %':>8}{'least':>8}{'most':>8}  verdicts")
        for kernel, verdicts in self.verdicts.items():
            bits = np.array(self.bits[kernel] or [math.nan])
            marks = (*np.quantile(bits, (0.05, 0.5, 0.95)), bits.min(), bits.max())
            words = ", ".join(f"{count} {word}" for word, count in sorted(verdicts.items()))
            print(f"{kernel:<20}{sum(verdicts.values()):>8}" + "".join(f"{m:>8.2f}" for m in marks) + f"  {words}")
        for line in self.wrong:
            print("on the wrong side:", line)


def honest_products(record: Record, seed: int, sizes: tuple[int, int, int]) -> None:
    """Verify one honest matrix product."""
    generator = torch.Generator().manual_seed(seed)
    names = list(FAMILIES)
    family = names[seed % len(names)]
    m, k, n = sizes
    kernels = list(PRODUCTS)
    kernel = kernels[seed // len(names) % len(kernels)]
    inputs = {"a": FAMILIES[family](generator, (m, k)), "b": FAMILIES[family](generator, (k, n))}
    report = verify(matmul_with(PRODUCTS[kernel]), inputs, reference=torch_matmul, seed=seed)
    for row in report.tensors:
        record.take(kernel, row, True, f"seed {seed}, {family}, {sizes}")


def torch_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply."""
    return a @ b


def lower_products(record: Record, seed: int) -> None:
    """Verify one product whose grad_a, a sum of 4096 terms, reads operands of lower precision."""
    generator = torch.Generator().manual_seed(seed)
    family = ("normal", "positive")[seed % 2]
    name = list(LOWER)[seed // 2 % len(LOWER)]

    class Matmul(matmul_with(torch.mm)):  # type: ignore[misc]
        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return LOWER[name](grad, b.T), a.T @ grad

    draw = FAMILIES[family]
    inputs = {"a": draw(generator, (16, 16)), "b": draw(generator, (16, 4096))}
    report = verify(Matmul, inputs, reference=torch_matmul, grads=[draw(generator, (16, 4096))], seed=seed)
    record.take(f"{name}, {family}", report.row("grad_a"), False, f"seed {seed}")


def rowwise(record: Record, seed: int, shape: tuple[int, int]) -> None:
    """Verify one honest kernel over rows."""
    generator = torch.Generator().manual_seed(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    name = list(ROWWISE)[seed // len(FAMILIES) % len(ROWWISE)]
    kernel, reference = ROWWISE[name]
    report = verify(kernel, {"x": FAMILIES[family](generator, shape)}, reference=reference, seed=seed)
    for row in report.tensors:
        record.take(name, row, True, f"seed {seed}, {family}, {shape}")


def cost() -> int:
    """Print the CPU time of `verify` without and with audit and sensitivity; return 1 where they add more than 30 %."""
    worst = 0.0
    print(f"{'case':<12}{'without ms':>11}{'with ms':>9}{'added':>8}")
    for name, case in CASES.items():
        inputs = case.inputs()
        upstream = [torch.randn(case.function(**inputs).shape)]

        def once(audit: bool, case: Case = case, inputs: Mapping[str, Tensor] = inputs, grads: Any = upstream) -> float:
            work = functools.partial(verify, case.function, inputs, reference=case.function, grads=grads, audit=audit)
            return 1e3 * seconds(work, time.thread_time)

        once(True), once(False)
        pairs = [(once(False), once(True)) for _ in range(9)]
        added = statistics.median(full / bare - 1 for bare, full in pairs)
        bare, full = (statistics.median(times) for times in zip(*pairs, strict=True))
        print(f"{name:<12}{bare:>11.0f}{full:>9.0f}{added:>8.0%}", flush=True)
        worst = max(worst, added)
    return int(worst > MOST_ADDED)


def main() -> int:
    """Print the distributions; return 1 where a kernel is on the wrong side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--large", action="store_true", help="a few large shapes as well")
    parser.add_argument("--cost", action="store_true", help="what audit and sensitivity add to a check, nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.cost:
        return cost()
    record, pick = Record(), np.random.default_rng(0)
    for seed in range(options.seeds):
        sizes = tuple(int(2 ** pick.uniform(0, top)) for top in (4, 11, 4))
        honest_products(record, seed, sizes)
        rowwise(record, seed, (int(2 ** pick.uniform(0, 6)), int(2 ** pick.uniform(0, 10))))
        if seed % 5 == 0:
            lower_products(record, seed // 5)
    if options.large:
        for seed in range(len(FAMILIES) * len(PRODUCTS)):
            honest_products(record, seed, (16, 1 << 16, 4))
        for seed in range(len(FAMILIES) * len(ROWWISE)):
            rowwise(record, seed, (4096, 64))
    record.show()
    bits = [b for kernel, found in record.bits.items() if kernel in (*PRODUCTS, *ROWWISE) for b in found]
    print(f"honest kernels: {len(bits)} tensors, at most {max(bits):.2f} bits lost; suspect above {SUSPECT_BITS:.0f}")
    return int(bool(record.wrong))


if __name__ == "__main__":
    sys.exit(main())
