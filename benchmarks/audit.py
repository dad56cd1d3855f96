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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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
             "bits": _bits(row), "what": f"{row.name} {where}"}
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
        """Print quantiles of the bits lost by kernel, and the most of the three other figures."""
        heads = ("5 %", "median", "95 %", "least", "most", "peak", "common", "before")
        print(f"{'kernel':<26}{'tensors':>8}" + "".join(f"{head:>8}" for head in heads) + "  verdicts")
        for kernel, verdicts in self.verdicts.items():
            bits, *others = np.array(self.bits[kernel] or [(math.nan,) * 4]).T
            marks = (*np.quantile(bits, (0.05, 0.5, 0.95)), bits.min(), bits.max(), *(o.max() for o in others))
            words = ", ".join(f"{count} {word}" for word, count in sorted(verdicts.items()))
            print(f"{kernel:<26}{sum(verdicts.values()):>8}" + "".join(f"{m:>8.2f}" for m in marks) + f"  {words}")
        for line in self.wrong:
            print("on the wrong side:", line)


def _bits(row: TensorReport) -> tuple[float, ...]:
    """Return the bits lost in rms, in the largest error, in the common factor and before the last rounding."""
    return (*row.precision.bits, row.precision.unrounded_bits) if row.precision else (math.nan,) * 4


Rows = Iterator[tuple[str, TensorReport, bool, str]]
HALVES = (torch.float16, torch.bfloat16)


def rounded_once(function: Callable[..., Tensor], dtype: torch.dtype) -> Callable[..., Tensor]:
    """Return the function on 16-bit tensors: computed in float32, results and gradients rounded at the end."""
    return lambda *given: function(*(value.float() for value in given)).to(dtype)


def honest_products(seed: int, sizes: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> Rows:
    """Verify one honest matrix product."""
    generator = torch.Generator().manual_seed(seed)
    names = list(FAMILIES)
    family = names[seed % len(names)]
    m, k, n = sizes
    kernels = list(PRODUCTS)
    kernel = kernels[seed // len(names) % len(kernels)]
    inputs = {"a": FAMILIES[family](generator, (m, k)), "b": FAMILIES[family](generator, (k, n))}
    function: Any = matmul_with(PRODUCTS[kernel])
    yield from _verified(function, torch_matmul, inputs, dtype, seed, kernel, f"{family}, {sizes}")


def _verified(
    kernel: Any, reference: Any, inputs: Mapping[str, Tensor], dtype: torch.dtype, seed: int, name: str, where: str
) -> Rows:
    """Verify an honest kernel in float32, or rounded once to 16 bits."""
    if dtype is not torch.float32:
        applied = kernel.apply if isinstance(kernel, type) else kernel
        kernel, reference = rounded_once(applied, dtype), rounded_once(reference, dtype)
        most = torch.finfo(dtype).max  # beyond it are infinities, where kernels may well differ
        inputs = {n: value.clamp(-most, most).to(dtype) for n, value in inputs.items()}
        name = f"{name}, 16 bits"
        kernel, reference = _named(kernel, list(inputs)), _named(reference, list(inputs))
    for row in verify(kernel, inputs, reference=reference, seed=seed).tensors:
        yield name, row, True, f"seed {seed}, {where}, {dtype}"


def _named(function: Callable[..., Tensor], names: Sequence[str]) -> Callable[..., Tensor]:
    """Return a function of one or two tensors that takes them by these names."""
    if names == ["x"]:
        return lambda x: function(x)
    return lambda a, b: function(a, b)


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


def parts_rounded(seed: int) -> Rows:
    """Verify one 16-bit product of 4096 terms whose four parts are rounded to 16 bits before they are added."""
    generator, dtype = torch.Generator().manual_seed(seed), HALVES[seed % 2]
    a, b = (torch.randn(shape, generator=generator).to(dtype) for shape in ((16, 4096), (4096, 16)))

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        parts = [(x.float() @ y.float()).to(dtype) for x, y in zip(a.chunk(4, 1), b.chunk(4, 0), strict=True)]
        return parts[0] + parts[1] + parts[2] + parts[3]

    reference = _named(rounded_once(torch_matmul, dtype), ["a", "b"])
    report = verify(kernel, {"a": a, "b": b}, reference=reference, wrt=[], seed=seed)
    yield f"parts in {str(dtype)[6:]}", report.row("output"), False, f"seed {seed}"


def rowwise(seed: int, shape: tuple[int, int], dtype: torch.dtype = torch.float32) -> Rows:
    """Verify one honest kernel over rows."""
    generator = torch.Generator().manual_seed(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    name = list(ROWWISE)[seed // len(FAMILIES) % len(ROWWISE)]
    kernel, reference = ROWWISE[name]
    x = FAMILIES[family](generator, shape)
    yield from _verified(kernel, reference, {"x": x}, dtype, seed, name, f"{family}, {shape}")


def main() -> int:
    """Print the distributions; return 1 where a kernel is on the wrong side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no seed after so many seconds")
    parser.add_argument("--large", action="store_true", help="a few large shapes as well")
    parser.add_argument("--log", type=pathlib.Path, help="keep the rows here, and go on from those that it holds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    record, pick, start = Record(options.log), np.random.default_rng(options.first), time.monotonic()
    for seed in range(options.first, options.first + options.seeds):
        if time.monotonic() - start > options.seconds:
            break
        sizes = tuple(int(2 ** pick.uniform(0, top)) for top in (4, 11, 4))
        shape = (int(2 ** pick.uniform(0, 6)), int(2 ** pick.uniform(0, 10)))
        record.run(f"product {seed}", functools.partial(honest_products, seed, sizes))
        record.run(f"rows {seed}", functools.partial(rowwise, seed, shape))
        record.run(f"16-bit product {seed}", functools.partial(honest_products, seed, sizes, HALVES[seed % 2]))
        record.run(f"16-bit rows {seed}", functools.partial(rowwise, seed, shape, HALVES[seed % 2]))
        if seed % 5 == 0:
            record.run(f"16-bit parts {seed // 5}", functools.partial(parts_rounded, seed // 5))
            record.run(f"lower {seed // 5}", functools.partial(lower_products, seed // 5))
    for seed in range(len(FAMILIES) * max(len(PRODUCTS), len(ROWWISE)) if options.large else 0):
        record.run(f"large product {seed}", functools.partial(honest_products, seed, (16, 1 << 16, 4)))
        record.run(f"large rows {seed}", functools.partial(rowwise, seed, (4096, 64)))
    record.show()
    honest = {*PRODUCTS, *ROWWISE}
    bits = [b for kernel, found in record.bits.items() if kernel.removesuffix(", 16 bits") in honest for b in found]
    most = ", ".join(f"{b:.2f}" for b in np.array(bits).max(0))
    print(f"honest kernels: {len(bits)} tensors, at most {most} bits lost; suspect above {SUSPECT_BITS:.0f}")
    return int(bool(record.wrong))


if __name__ == "__main__":
    sys.exit(main())
