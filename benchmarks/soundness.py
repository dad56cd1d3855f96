"""Random programs against legal evaluations: every one must be covered, and planted errors must be caught.

python benchmarks/soundness.py --programs 20000 --dtype float32 --workers 2 [--order first|double|jvp]

The order is that of the derivatives: outputs and gradients, gradients of the gradients, or tangents by forward mode.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import multiprocessing
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.random_programs import INACCURATE_IN_FLOAT64, AnyOrder, OverflowWatch, random_inputs, random_program
from kernels_core.coverage import Element
from kernels_core.errors import UnsupportedOperation
from kernels_core.reference import Check, Result, reference

Tensor = torch.Tensor


class Case:
    """One program at one set of inputs, with its upstream gradient and the vectors of the second order."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        """Draw everything from the seed."""
        left_out = INACCURATE_IN_FLOAT64 if dtype is torch.float64 else ()
        self.program, self.names = random_program(seed, leave_out=left_out)
        self.inputs = random_inputs(seed, dtype)
        self.check = Check(reference(self.program), dict(zip("abc", self.inputs, strict=True)))
        generator = torch.Generator().manual_seed(seed)
        shape = self.check.forward.output_metas["output"].shape
        self.upstream = torch.randn(shape, generator=generator).to(dtype)
        self.vectors = [torch.randn(t.shape, generator=generator).to(dtype) for t in self.inputs]

    def first(self) -> list[Tensor]:
        """Return output and gradients."""
        leaves = [t.clone().requires_grad_(True) for t in self.inputs]
        result = self.program(*leaves)
        grads = torch.autograd.grad(result, leaves, self.upstream, allow_unused=True)
        return [result.detach(), *_filled(grads, self.inputs)]

    def double(self) -> list[Tensor]:
        """Return the gradients of the gradients, by the inputs and by the upstream gradient."""
        leaves = [t.clone().requires_grad_(True) for t in (*self.inputs, self.upstream)]
        result = self.program(*leaves[:-1])
        first = torch.autograd.grad(result, leaves[:-1], leaves[-1], create_graph=True, allow_unused=True)
        used = [(g, v) for g, v in zip(first, self.vectors, strict=True) if g is not None and g.requires_grad]
        if not used:
            return [torch.zeros_like(t) for t in leaves]
        grads = torch.autograd.grad([g for g, _ in used], leaves, [v for _, v in used], allow_unused=True)
        return _filled(grads, leaves)

    def jvp(self) -> list[Tensor]:
        """Return the tangent of the output."""
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(t, v) for t, v in zip(self.inputs, self.vectors, strict=True)]
            return _filled([forward_ad.unpack_dual(self.program(*duals)).tangent], [self.upstream])

    def admitted(self, order: str) -> list[Result]:
        """Return what is admitted for the results of the method of that name."""
        if order == "first":
            return list(self.check.both([self.upstream]).values())
        if order == "double":
            given = {f"grad_{name}": v for name, v in zip("abc", self.vectors, strict=True)}
            return list(self.check.second_order([self.upstream], given).values())
        return list(self.check.tangents(dict(zip("abc", self.vectors, strict=True))).values())


def _filled(grads: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(t) if g is None else g.detach() for t, g in zip(like, grads, strict=True)]


def evaluate(case: Case, derivatives: str, order: int | None) -> list[Tensor] | None:
    """Return the results, in PyTorch's own order for None, else in one drawn from the seed.

    None where an intermediate result overflowed: that is no legal evaluation.
    """
    watch = OverflowWatch()
    with watch, contextlib.nullcontext() if order is None else AnyOrder(order):
        found: list[Tensor] = getattr(case, derivatives)()
    return None if watch.seen else found


def check_program(seed: int, dtype: torch.dtype, orders: int = 2, derivatives: str = "first") -> dict[str, Any]:
    """Check one program; return counts by verdict, and the first violated tensor."""
    try:
        case = Case(seed, dtype)
        results = case.admitted(derivatives)
    except UnsupportedOperation as error:
        return {"unsupported": error.operation}
    counts: collections.Counter[str] = collections.Counter()
    for order in [None, *range(orders)]:
        actuals = evaluate(case, derivatives, None if order is None else 7919 * seed + order)
        if actuals is None:
            counts["overflowed evaluations"] += 1
            continue
        for result, actual in zip(results, actuals, strict=True):
            verdict = result.verdict(actual)
            for element in Element:
                counts[element.name.lower()] += int((verdict == element).sum())
            if bool((verdict == Element.VIOLATED).any()):
                return {"seed": seed, "names": case.names, "violated": result.name, "order": order}
    return dict(counts)


def tightness(seed: int) -> tuple[int, int]:
    """Return (caught, planted): errors of 64 times the true rounding error, planted in an elementwise program.

    The true rounding error of an element is the largest deviation over 16 evaluations in which the result of every step
    is moved by up to one unit roundoff, at least half an ulp.
    """
    from benchmarks.jitter import Jitter

    program, _ = random_program(seed, elementwise=True)
    inputs = random_inputs(seed, torch.float32)
    check = Check(reference(program), dict(zip("abc", inputs, strict=True)))
    result = check.outputs()["output"]
    exact = result.enclosure.mid
    spread = exact.abs() * 2.0**-24
    for run in range(16):
        with Jitter(run):
            spread = torch.maximum(spread, (program(*inputs).double() - exact).abs())
    planted = (exact + 64 * spread + 2.0**-140).float()
    usable = planted.isfinite() & exact.isfinite()
    caught = result.verdict(planted) == Element.VIOLATED
    return int((caught & usable).sum()), int(usable.sum())


def _one(job: tuple[int, str, str]) -> dict[str, Any]:
    torch.set_num_threads(1)
    try:
        return check_program(job[0], getattr(torch, job[1]), derivatives=job[2])
    except Exception as error:
        return {"seed": job[0], "error": f"{type(error).__name__}: {str(error)[:200]}"}


def main() -> int:
    """Run and print; exit 1 on any violation or error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--order", choices=("first", "double", "jvp"), default="first", help="of the derivatives")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tightness", type=int, default=500)
    options = parser.parse_args()
    start, totals, bad = time.monotonic(), collections.Counter[str](), []
    jobs = [(seed, options.dtype, options.order) for seed in range(options.first, options.first + options.programs)]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for found in pool.imap_unordered(_one, jobs, chunksize=16):
            if "seed" in found:
                bad.append(found)
                sys.stdout.write(json.dumps(found) + "\n")
                sys.stdout.flush()
                continue
            if "unsupported" in found:
                totals[f"unsupported {found['unsupported']}"] += 1
                continue
            totals["programs"] += 1
            totals.update(found)
    caught = planted = 0
    for seed in range(options.tightness):
        a, b = tightness(seed)
        caught, planted = caught + a, planted + b
    sys.stdout.write(f"{options.dtype}: {json.dumps(totals)}; {len(bad)} bad; {time.monotonic() - start:.0f} s\n")
    sys.stdout.write(
        f"tightness: {caught} of {planted} planted errors caught ({100 * caught / max(1, planted):.2f} %)\n"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
