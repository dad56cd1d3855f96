"""How tight the catalogue's bounds are: the bound over the largest error seen in many legal evaluations.

    python -m benchmarks.tightness [--orders 24] [--seeds 4] [--dtype float32] [name ...]

Every example of the catalogue is evaluated by PyTorch in its own order and in orders drawn at random (permuted,
reversed, blocked, with and without FMA, some steps in float64 with one rounding), gradients too, for several inputs. A
row has, for outputs and for gradients, the smallest bound / error over all elements and evaluations: 1 is a bound that
is attained, 10 one that no evaluation came nearer to than a tenth. An error above its bound is a fault of ours: exit 1.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.catalogue_examples import Draw, cases
from benchmarks.legal_evaluations import AnyOrder
from kernels_core.coverage import Element
from kernels_core.reference import Check, Reference, Result

Tensor = torch.Tensor
Arguments = Mapping[str, Any]


def evaluate(reference: Reference, args: Arguments, upstream: list[Tensor], order: int | None) -> list[Tensor]:
    """Return outputs and gradients in PyTorch's order for None, else in one drawn from the seed."""
    leaves = {k: v.clone().requires_grad_() if _floating(v) else v for k, v in args.items()}
    wrt = [leaf for leaf in leaves.values() if _floating(leaf)]

    def run() -> list[Tensor]:
        result = reference.function(**leaves)
        outputs = list(result) if isinstance(result, tuple) else [result]
        grads = torch.autograd.grad(outputs, wrt, upstream, allow_unused=True)
        return [*outputs, *(torch.zeros_like(t) if g is None else g for t, g in zip(wrt, grads, strict=True))]

    if order is None:
        return [t.detach() for t in run()]
    with AnyOrder(order):
        return [t.detach() for t in run()]


def used(result: Result, actual: Tensor) -> float:
    """Return the largest |actual - exact| / bound of a tensor; infinite where an element is violated."""
    if bool((result.verdict(actual) == Element.VIOLATED).any()):
        return math.inf
    bound = result.enclosure.bound
    if bound is None:
        return 0.0
    error = (actual.double() - result.enclosure.mid).abs()
    ratio = torch.where((bound > 0) & bound.isfinite() & error.isfinite(), error / bound, 0.0)
    return float(ratio.max()) if ratio.numel() else 0.0


def measure(
    reference: Reference, make: Callable[[Draw], Arguments], dtype: torch.dtype, seeds: int, orders: int
) -> tuple[float, float]:
    """Return the largest used share of the bound, of outputs and of gradients."""
    worst = [0.0, 0.0]
    for seed in range(seeds):
        args = make(Draw(dtype, seed))
        check = Check(reference, dict(args))
        metas = check.forward.output_metas.values()
        upstream = [Draw(meta.dtype, 7 + i).normal(*meta.shape) for i, meta in enumerate(metas)]
        results = list(check.both(upstream).values())
        for order in [None, *range(orders)]:
            actuals = evaluate(reference, args, upstream, None if order is None else 7919 * seed + order)
            for place, (result, actual) in enumerate(zip(results, actuals, strict=True)):
                kind = int(place >= len(upstream))
                worst[kind] = max(worst[kind], used(result, actual))
    return worst[0], worst[1]


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _shown(share: float) -> str:
    return "exact" if share == 0 else "violated" if share == math.inf else f"{1 / share:.1f}"


def main() -> int:
    """Measure and print, the loosest last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--orders", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name, reference, make in cases():
        entry = name.partition(",")[0].partition(".")[0]
        if reference.surrogate or (options.names and entry not in options.names):
            continue  # a surrogate's gradient is not autograd's
        rows.append((name, *measure(reference, make, getattr(torch, options.dtype), options.seeds, options.orders)))
    for name, output, gradient in sorted(rows, key=lambda row: -max(row[1:])):
        sys.stdout.write(f"{name:42} {_shown(output):>9} {_shown(gradient):>9}\n")
    return int(any(math.inf in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
