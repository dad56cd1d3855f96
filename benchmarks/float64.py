"""What a float64 check decides and costs: every element, against PyTorch's own float64 forward and backward.

    python -m benchmarks.float64 [case ...] [--pairs 3] [--threads 2]

One process; a case is checked whole (outputs and all gradients) after a warm-up. Times are the smallest of several,
taken in turns. Beside the correct kernel, which must be covered everywhere, runs one with float32 inside, which must
not be: it is violated, or suspect where its errors stay within the worst-case bound.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from kernels_core.coverage import Element
from kernels_core.reference import Check, reference

Tensor = torch.Tensor
Tensors = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Case:
    """A function at production size, and the largest ratio that its check may cost."""

    function: Callable[..., Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    ratio: float

    def inputs(self) -> Tensors:
        """Return float64 inputs."""
        torch.manual_seed(0)
        return {name: torch.randn(shape, dtype=torch.float64) for name, shape in self.shapes.items()}


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product."""
    return a @ b


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension."""
    return torch.softmax(x, -1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm over the last dimension."""
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Softmax attention."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ value


def gelu(x: Tensor) -> Tensor:
    """GELU with the error function."""
    return functional.gelu(x)


CASES: Mapping[str, Case] = {
    "matmul": Case(matmul, {"a": (1024, 1024), "b": (1024, 1024)}, 30),
    "softmax": Case(softmax, {"x": (4096, 1024)}, 100),
    "layer_norm": Case(layer_norm, {"x": (4096, 1024), "weight": (1024,), "bias": (1024,)}, 100),
    "attention": Case(attention, {"query": (8, 512, 64), "key": (8, 512, 64), "value": (8, 512, 64)}, 100),
    "gelu": Case(gelu, {"x": (4096, 1024)}, 100),
}


def forward_backward(function: Callable[..., Tensor], inputs: Tensors, upstream: Tensor) -> list[Tensor]:
    """Return output and gradients as PyTorch computes them."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
    output = function(**leaves)
    return [output.detach(), *torch.autograd.grad(output, list(leaves.values()), upstream)]


def in_float32(function: Callable[..., Tensor], inputs: Tensors, upstream: Tensor) -> list[Tensor]:
    """Return the same by float32 arithmetic."""
    narrow = {name: tensor.float() for name, tensor in inputs.items()}
    return [value.double() for value in forward_backward(function, narrow, upstream.float())]


def counts(case: Case, inputs: Tensors, upstream: Tensor, actual: list[Tensor]) -> list[int]:
    """Return how many elements of outputs and gradients are covered, violated, undecided, unconstrained."""
    results = Check(reference(case.function), inputs).both([upstream])
    verdicts = [result.verdict(value) for result, value in zip(results.values(), actual, strict=True)]
    return [sum(int(torch.count_nonzero(verdict == element)) for verdict in verdicts) for element in Element]


def smallest(function: Callable[[], Any], pairs: int) -> float:
    """Return the smallest time of some calls, in seconds."""
    times = []
    for _ in range(pairs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def run(name: str, pairs: int) -> bool:
    """Print one row; return True where everything is as wanted."""
    case = CASES[name]
    inputs = case.inputs()
    upstream = torch.randn(case.function(**inputs).shape, dtype=torch.float64)
    right, wrong = forward_backward(case.function, inputs, upstream), in_float32(case.function, inputs, upstream)
    found = counts(case, inputs, upstream, right)
    caught = counts(case, inputs, upstream, wrong)
    plain = smallest(lambda: forward_backward(case.function, inputs, upstream), 2 * pairs)
    check = smallest(lambda: counts(case, inputs, upstream, right), pairs)
    total = sum(value.numel() for value in right)
    good = found[0] == total and caught[0] < total and caught[2] == 0
    good = good and check <= case.ratio * plain
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sys.stdout.write(
        f"{name:<11}{total:>10}{found[0]:>10}{found[1]:>9}{found[2]:>10}   {100 * caught[1] / total:>8.2f} %"
        f"{1000 * plain:>11.0f}{1000 * check:>11.0f}{check / plain:>8.1f}{case.ratio:>8.0f}{memory:>8.1f}  "
        f"{'ok' if good else 'FALLS SHORT'}\n"
    )
    sys.stdout.flush()
    return good


def main() -> int:
    """Run and print; exit 1 where a case falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sys.stdout.write(
        "case         elements   covered violated undecided  float32 viol.  PyTorch ms   check ms   ratio   limit  GB\n"
    )
    return 0 if all([run(name, options.pairs) for name in options.cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
