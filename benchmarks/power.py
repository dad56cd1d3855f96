"""The mutation score of exactref on its catalogue, with gradcheck and assert_close on the same mutants.

    python -m benchmarks.power [--limit N] [--production] [name ...]

Every reference is run by PyTorch in float32, bfloat16 and float16 and damaged (kernels_core/power). Undamaged it must
be covered. assert_close, with its defaults, compares the damaged results with the undamaged ones. gradcheck, in float64
with its defaults, gets the same fault planted in the float64 run, at small shapes in float32 only: its cost grows with
the square of the size. Equivalent mutants count for nobody. Returns 1 where an undamaged kernel is not covered.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch

import exactref as er
from kernels_core.errors import UsageError
from kernels_core.power import Laboratory, power
from kernels_core.power.results import KINDS
from kernels_core.power.score import Fate, Mutant, Score
from kernels_core.power.steps import Fault, Steps

Tensor = torch.Tensor
Shapes = Mapping[str, tuple[int, ...]]

SMALL: Mapping[str, Shapes] = {
    "matmul": {"A": (4, 6), "B": (6, 3)},
    "linear": {"input": (4, 6), "weight": (3, 6), "bias": (3,)},
    "softmax": {"input": (3, 6)},
    "log_softmax": {"input": (3, 6)},
    "cross_entropy": {"input": (4, 6)},
    "layer_norm": {"input": (4, 6), "weight": (6,), "bias": (6,)},
    "rms_norm": {"input": (4, 6), "weight": (6,)},
    "attention": {"query": (1, 4, 3), "key": (1, 4, 3), "value": (1, 4, 3)},
    **{name: {"input": (4, 6)} for name in ("gelu", "silu", "relu", "sigmoid", "tanh", "softplus", "square", "cube")},
    **{name: {"gate": (4, 6), "up": (4, 6)} for name in ("swiglu", "geglu")},
}
PRODUCTION: Mapping[str, Shapes] = {
    "matmul": {"A": (256, 1024), "B": (1024, 256)},
    "linear": {"input": (256, 1024), "weight": (256, 1024), "bias": (256,)},
    "softmax": {"input": (256, 1024)},
    "log_softmax": {"input": (256, 1024)},
    "cross_entropy": {"input": (256, 1024)},
    "layer_norm": {"input": (256, 1024), "weight": (1024,), "bias": (1024,)},
    "rms_norm": {"input": (256, 1024), "weight": (1024,)},
    "attention": {name: (4, 128, 64) for name in ("query", "key", "value")},
    **{name: {"input": (256, 1024)} for name in ("gelu", "silu", "relu", "sigmoid", "tanh", "softplus", "square")},
    "cube": {"input": (256, 1024)},
    **{name: {"gate": (256, 1024), "up": (256, 1024)} for name in ("swiglu", "geglu")},
}


def inputs_of(name: str, shapes: Shapes, dtype: torch.dtype) -> dict[str, Any]:
    """Draw the inputs of a reference."""
    generator = torch.Generator().manual_seed(0)
    drawn: dict[str, Any] = {n: torch.randn(shape, generator=generator).to(dtype) for n, shape in shapes.items()}
    if name == "cross_entropy":
        rows, classes = shapes["input"]
        drawn["target"] = torch.randint(classes, (rows,), generator=generator)
    return drawn


def close(mutant: Mutant, laboratory: Laboratory) -> bool:
    """Return True where assert_close accepts every damaged result."""
    for name, value in (mutant.damaged or {}).items():
        try:
            torch.testing.assert_close(value, laboratory.undamaged[name])
        except AssertionError:
            return False
    return mutant.damaged is not None


def passes_gradcheck(mutant: Mutant, laboratory: Laboratory) -> bool:
    """Return True where gradcheck accepts the fault, planted in a float64 run."""
    wide = {
        n: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in laboratory.inputs.items()
    }
    twin = Laboratory(laboratory.function, wide, reference=laboratory.check.reference)
    names = list(twin.check.wrt)

    def damaged(values: tuple[Tensor, ...], upstream: list[Tensor]) -> dict[str, Tensor | None]:
        twin.check.tensors.update(zip(names, values, strict=True))
        twin.upstream = upstream
        if mutant.place.startswith("result "):
            found, name = twin.run(), mutant.place.removeprefix("result ")
            value = found[name]
            changed = None if value is None else KINDS[mutant.kind](value.detach())
            return found if changed is None else {**found, name: changed}
        number, operation = mutant.place.removeprefix("operation ").split(", ")
        with Steps(Fault(int(number), operation, mutant.kind)):
            return twin.run()

    upstream_like = list(twin.upstream)

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *values: Tensor) -> Any:
            ctx.save_for_backward(*values)
            found = damaged(values, upstream_like)
            return next(v for n, v in found.items() if not n.startswith("grad_"))

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            found = damaged(ctx.saved_tensors, [grad])
            return tuple(found[f"grad_{name}"] for name in names)

    leaves = [wide[name].detach().clone().requires_grad_() for name in names]
    try:
        return bool(torch.autograd.gradcheck(Kernel.apply, leaves, raise_exception=False))
    except Exception:
        return False


class Table:
    """One line per case, and the missed mutants by kind."""

    def __init__(self) -> None:
        """Print the heading."""
        self.totals: collections.Counter[str] = collections.Counter()
        self.missed: collections.Counter[tuple[str, str]] = collections.Counter()
        print(
            f"{'case':<34}{'mutants':>8}{'equiv.':>7}{'caught':>7}{'suspect':>8}{'share':>8}{'close':>8}{'gradcheck':>10}"
        )

    def add(self, case: str, dtype: str, laboratory: Laboratory, score: Score, gradcheck: bool) -> None:
        """Score the other two on the same mutants and print the line."""
        real = [mutant for mutant in score.mutants if mutant.fate is not Fate.EQUIVALENT]
        found = {"real": len(real), "caught": score.caught, "close": sum(not close(m, laboratory) for m in real)}
        if gradcheck:
            found |= {"checked": len(real), "gradcheck": sum(not passes_gradcheck(m, laboratory) for m in real)}
        self.totals.update(found)
        self.missed.update((dtype, mutant.kind) for mutant in score.missed)
        self._line(case, len(score.mutants), score.count(Fate.SUSPECT), found)

    def _line(self, case: str, mutants: int, suspect: int, found: Mapping[str, int]) -> None:
        real = max(1, found["real"])
        checked = f"{found['gradcheck'] / max(1, found['checked']):>10.1%}" if found.get("checked") else f"{'-':>10}"
        print(f"{case:<34}{mutants:>8}{mutants - found['real']:>7}{found['caught']:>7}{suspect:>8}"
              f"{found['caught'] / real:>8.1%}{found['close'] / real:>8.1%}{checked}", flush=True)  # fmt: skip

    def close(self) -> None:
        """Print the totals and what was missed."""
        self._line("all", self.totals["real"], 0, self.totals)
        for (dtype, kind), number in self.missed.most_common():
            print(f"missed: {number} times {kind} in {dtype}")


def main() -> int:
    """Print the table; return 1 where an undamaged kernel is not covered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(SMALL))
    parser.add_argument("--limit", type=int, default=60, help="mutants of single operations per case")
    parser.add_argument("--production", action="store_true", help="at production-like shapes; without gradcheck")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table, alarms, start = Table(), 0, time.monotonic()
    for name in options.names:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            kind = str(dtype)[6:]
            shapes = (PRODUCTION if options.production else SMALL)[name]
            kernel = er.catalogue()[name]
            try:
                laboratory = Laboratory(kernel.function, inputs_of(name, shapes, dtype), reference=kernel)
            except UsageError as error:
                alarms += 1
                print(f"FALSE ALARM {name} {kind}: {error}")
                continue
            score = power(laboratory, options.limit)
            table.add(f"{name} {kind}", kind, laboratory, score, dtype is torch.float32 and not options.production)
    table.close()
    print(f"{alarms} false alarms on undamaged kernels; {time.monotonic() - start:.0f} s")
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
