"""What a check costs: time against PyTorch's own float64 forward and backward, peak memory against the float64 tensors.

    python -m benchmarks.cost [case ...] [--cpu]

One process, two threads, after a warm-up. A case's time is that of the whole verification (`verify`: trace, run the
kernel, bound, decide, fill the report's row); the column "check" is the part that certifies (`Check.both` and
`verdict`). Ratios are medians over pairs measured back to back, so that a busy machine slows both sides alike. Peak
memory is that of a fresh process per case: the growth of the resident set during `verify`, over the float64 tensors
that the check is about: inputs, upstream gradients, outputs and gradients. The verdicts must not depend on the tile
size nor on the number of threads.

With --cpu one thread is used and its CPU time is compared: for machines whose cores are busy with something else, where
threads that wait for each other say more about the neighbours than about the work.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from kernels_core.filter import tiles
from kernels_core.reference import Check, reference
from kernels_core.verify import verify

THREADS = 2
PAIRS = 7
LARGEST_TIME, LARGEST_MEMORY = 8.0, 8.0

Tensors = dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel with its inputs and the largest ratios that it may cost."""

    function: Callable[..., torch.Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    time: float = LARGEST_TIME
    memory: float = LARGEST_MEMORY

    def inputs(self, scale: int = 1) -> Tensors:
        """Return float32 inputs, every dimension divided by `scale`."""
        torch.manual_seed(0)
        return {name: torch.randn([max(1, n // scale) for n in shape]) for name, shape in self.shapes.items()}


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Matrix product."""
    return a @ b


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension."""
    return torch.softmax(x, -1)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Layer norm over the last dimension."""
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU with the error function."""
    return functional.gelu(x)


CASES: Mapping[str, Case] = {
    "matmul": Case(matmul, {"a": (1024, 1024), "b": (1024, 1024)}, time=2.5),
    "softmax": Case(softmax, {"x": (4096, 1024)}),
    "layer_norm": Case(layer_norm, {"x": (4096, 1024), "weight": (1024,), "bias": (1024,)}),
    "gelu": Case(gelu, {"x": (4096, 1024)}),
}


def forward_backward(
    function: Callable[..., torch.Tensor], inputs: Tensors, upstream: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return output and gradients as PyTorch computes them in the dtype of the inputs."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
    output = function(**leaves)
    return output.detach(), *torch.autograd.grad(output, list(leaves.values()), upstream)


def codes(
    function: Callable[..., torch.Tensor], inputs: Tensors, upstream: torch.Tensor, actual: tuple[torch.Tensor, ...]
) -> list[torch.Tensor]:
    """Return the verdict codes of outputs and gradients."""
    results = Check(reference(function), inputs).both([upstream])
    return [result.verdict(value) for result, value in zip(results.values(), actual, strict=True)]


def seconds(function: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Return the time of one call."""
    start = clock()
    function()
    return clock() - start


def ratios(case: Case, clock: Callable[[], float]) -> tuple[float, float, float]:
    """Return (milliseconds of float64, check / float64, verify / float64)."""
    inputs = case.inputs()
    upstream = torch.randn(case.function(**inputs).shape)
    actual = forward_backward(case.function, inputs, upstream)
    wide, wide_upstream = {name: tensor.double() for name, tensor in inputs.items()}, upstream.double()

    def plain() -> None:
        forward_backward(case.function, wide, wide_upstream)

    def check() -> None:
        codes(case.function, inputs, upstream, actual)

    def whole() -> None:
        verify(case.function, inputs, reference=case.function, grads=[upstream])

    for warm_up in (plain, check, whole) * 2:
        warm_up()
    rounds = [tuple(seconds(part, clock) for part in (plain, check, plain, whole)) for _ in range(PAIRS)]
    return (statistics.median(1e3 * r[0] for r in rounds), statistics.median(r[1] / r[0] for r in rounds),
            statistics.median(r[3] / r[2] for r in rounds))  # fmt: skip


def verdicts_agree(case: Case) -> bool:
    """Return True where the codes are those of another tile size and of another number of threads."""
    inputs = case.inputs(scale=2)
    upstream = torch.randn(case.function(**inputs).shape)
    actual = forward_backward(case.function, inputs, upstream)
    for value in actual:  # some elements on either side of their bounds
        value.view(-1)[::97] *= 1 + 2.0**-18
    found, usual, before = [], tiles.TILE_ELEMENTS, torch.get_num_threads()
    try:
        for elements, threads in ((usual, THREADS), (usual // 8, THREADS), (usual, 1)):
            tiles.TILE_ELEMENTS = elements
            torch.set_num_threads(threads)
            found.append(codes(case.function, inputs, upstream, actual))
    finally:
        tiles.TILE_ELEMENTS = usual
        torch.set_num_threads(before)
    return all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def memory_ratio(name: str) -> float:
    """Return the peak memory of a check over its float64 tensors, measured in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.cost", "--memory", name]
    root = pathlib.Path(__file__).resolve().parent.parent
    return float(subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout)


def memory_here(case: Case) -> float:
    """Return the same for this process, which must not have done anything large before."""
    small, inputs = case.inputs(scale=16), case.inputs()
    verify(case.function, small, reference=case.function)
    before = _resident()
    report = verify(case.function, inputs, reference=case.function)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    elements = sum(t.numel() for t in inputs.values()) + sum(row.elements for row in report.tensors)
    elements += next(row.elements for row in report.tensors)  # the upstream gradient
    return (peak - before) / (8 * elements)


def _resident() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> int:
    """Print the table; return 1 where a limit is broken or a verdict moves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), help="names of cases; all by default")
    parser.add_argument("--memory", metavar="CASE", help="print the memory ratio of one case and nothing else")
    parser.add_argument("--cpu", action="store_true", help="compare the CPU time of one thread")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.cpu else THREADS)
    clock = time.thread_time if options.cpu else time.perf_counter
    if options.memory:
        print(memory_here(CASES[options.memory]))
        return 0
    broken = False
    print(
        f"{'case':<12}{'float64 ms':>11}{'check':>8}{'verify':>8}{'limit':>7}{'memory':>8}{'limit':>7}  same verdicts"
    )
    for name in options.cases:
        case = CASES[name]
        plain, check, whole = ratios(case, clock)
        memory, same = memory_ratio(name), verdicts_agree(case)
        broken |= whole > case.time or memory > case.memory or not same
        print(
            f"{name:<12}{plain:>11.1f}{check:>8.2f}{whole:>8.2f}{case.time:>7.1f}{memory:>8.1f}{case.memory:>7.1f}  "
            f"{'yes' if same else 'NO'}"
        )
    print("a limit is broken" if broken else "all within their limits")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
