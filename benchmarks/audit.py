"""The margins of the precision audit: bits lost by honest kernels and by kernels of lower precision, over many seeds.

    python -m benchmarks.audit [--seeds N] [--large] [--log FILE]

Every seed draws the inputs, their family and their shape; every kernel is verified on them. Honest kernels (sequential,
descending, pairwise, blocked and split sums, lanes, fused multiply-adds, online softmax, exp2-based exponentials, one
or more of each) must be covered; kernels that read float16, bfloat16 or TF32 operands in their float32 products of
K = 4096, one seed in five, must be violated or suspect. Prints the distribution of bits lost; returns 1 where a kernel
is on the wrong side.

With --log every row is added to a file, and the seeds that it holds are not run again: a long run may be broken off.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from benchmarks.honest_kernels import FAMILIES, LOWER, PRODUCTS, ROWWISE, matmul_with
from kernels_core.report import SUSPECT_BITS, TensorReport, Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor


class Record:
    """Bits lost by kernel, and the verdicts."""

    def __init__(self, log: pathlib.Path | None) -> None:
        """Start from what the log holds."""
        self.bits: dict[str, list[Sequence[float]]] = collections.defaultdict(list)
        self.verdicts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.wrong: list[str] = []
        self.log, self.done = log, set[str]()
        for line in log.read_text().splitlines() if log is not None and log.exists() else ():
            self._count(**json.loads(line))

    def run(self, task: str, rows: Callable[[], Iterator[tuple[str, TensorReport, bool, str]]]) -> None:
        """Run a task that is not in the log and take in its rows: (kernel, row, honest, where)."""
        if task in self.done:
            return
        found = [
            {"task": task, "kernel": kernel, "verdict": row.verdict.value, "honest": honest,
             "bits": row.precision.bits if row.precision else (math.nan,) * 3, "what": f"{row.name} {where}"}
            for kernel, row, honest, where in rows()
        ]  # fmt: skip
        for entry in found:
            self._count(**entry)
        if self.log is not None:
            with self.log.open("a") as file:
                file.writelines(json.dumps(entry) + "\n" for entry in found)

    def _count(self, task: str, kernel: str, verdict: str, honest: bool, bits: Sequence[float], what: str) -> None:
        self.done.add(task)
        self.verdicts[kernel][verdict] += 1
        if math.isfinite(bits[0]):
            self.bits[kernel].append(bits)
        if verdict not in ((Verdict.COVERED,) if honest else (Verdict.SUSPECT, Verdict.VIOLATED)):
            self.wrong.append(f"{kernel}: {verdict}, {', '.join(f'{b:.2f}' for b in bits)} bits, {what}")

    def show(self) -> None:
        """Print quantiles of the bits lost by kernel, and the most of the largest error and of the common factor."""
        heads = ("5 %", "median", "95 %", "least", "most", "peak", "common")
        print(f"{'kernel':<26}{'tensors':>8}" + "".join(f"{head:>8}" for head in heads) + "  verdicts")
        for kernel, verdicts in self.verdicts.items():
            bits, *others = np.array(self.bits[kernel] or [(math.nan,) * 3]).T
            marks = (*np.quantile(bits, (0.05, 0.5, 0.95)), bits.min(), bits.max(), *(o.max() for o in others))
            words = ", ".join(f"{count} {word}" for word, count in sorted(verdicts.items()))
            print(f"{kernel:<26}{sum(verdicts.values()):>8}" + "".join(f"{m:>8.2f}" for m in marks) + f"  {words}")
        for line in self.wrong:
            print("on the wrong side:", line)


Rows = Iterator[tuple[str, TensorReport, bool, str]]


def honest_products(seed: int, sizes: tuple[int, int, int]) -> Rows:
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
        yield kernel, row, True, f"seed {seed}, {family}, {sizes}"


def torch_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply."""
    return a @ b


def lower_products(seed: int) -> Rows:
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
    yield f"{name}, {family}", report.row("grad_a"), False, f"seed {seed}"


def rowwise(seed: int, shape: tuple[int, int]) -> Rows:
    """Verify one honest kernel over rows."""
    generator = torch.Generator().manual_seed(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    name = list(ROWWISE)[seed // len(FAMILIES) % len(ROWWISE)]
    kernel, reference = ROWWISE[name]
    report = verify(kernel, {"x": FAMILIES[family](generator, shape)}, reference=reference, seed=seed)
    for row in report.tensors:
        yield name, row, True, f"seed {seed}, {family}, {shape}"


def main() -> int:
    """Print the distributions; return 1 where a kernel is on the wrong side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--large", action="store_true", help="a few large shapes as well")
    parser.add_argument("--log", type=pathlib.Path, help="keep the rows here, and go on from those that it holds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    record, pick = Record(options.log), np.random.default_rng(0)
    for seed in range(options.seeds):
        sizes = tuple(int(2 ** pick.uniform(0, top)) for top in (4, 11, 4))
        shape = (int(2 ** pick.uniform(0, 6)), int(2 ** pick.uniform(0, 10)))
        record.run(f"product {seed}", functools.partial(honest_products, seed, sizes))
        record.run(f"rows {seed}", functools.partial(rowwise, seed, shape))
        if seed % 5 == 0:
            record.run(f"lower {seed // 5}", functools.partial(lower_products, seed // 5))
    for seed in range(len(FAMILIES) * max(len(PRODUCTS), len(ROWWISE)) if options.large else 0):
        record.run(f"large product {seed}", functools.partial(honest_products, seed, (16, 1 << 16, 4)))
        record.run(f"large rows {seed}", functools.partial(rowwise, seed, (4096, 64)))
    record.show()
    bits = [b for kernel, found in record.bits.items() if kernel in (*PRODUCTS, *ROWWISE) for b in found]
    most = ", ".join(f"{b:.2f}" for b in np.array(bits).max(0))
    print(f"honest kernels: {len(bits)} tensors, at most {most} bits lost; suspect above {SUSPECT_BITS:.0f}")
    return int(bool(record.wrong))


if __name__ == "__main__":
    sys.exit(main())
