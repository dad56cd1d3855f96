"""Random programs against legal evaluations: every one must be covered, and planted errors must be caught.

python benchmarks/soundness.py --programs 20000 --dtype float32 --workers 2 [--order first|double|jvp] [--log FILE]

The order is that of the derivatives: outputs and gradients, gradients of the gradients, or tangents by forward mode.
With a log the sweep goes on where an earlier one stopped; each line is the sum of one chunk of programs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import json
import multiprocessing
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.drawing import drawn
from benchmarks.legal_evaluations import AnyOrder, OverflowWatch
from benchmarks.planted_errors import planted_errors
from kernels_core.coverage import Element
from kernels_core.errors import UnsupportedOperation
from kernels_core.reference import Check, Result, reference
from kernels_core.tracing.complex_parts import draw, parts_of

Tensor = torch.Tensor
CHUNK = 200  # programs between two lines of a log


class Case:
    """One program at one set of inputs, with its upstream gradient and the vectors of the second order."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        """Draw everything from the seed."""
        self.program, self.names, self.inputs = drawn(seed, dtype)
        self.check = Check(reference(self.program), dict(zip("abc", self.inputs, strict=True)))
        generator = torch.Generator().manual_seed(seed)
        output = self.check.whole_outputs["output"]
        self.upstream = draw(output, output.shape, generator)
        self.vectors = [draw(t, t.shape, generator) for t in self.inputs]

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
    """Return the results, complex ones in parts: in PyTorch's own order for None, else in one drawn from the seed.

    None where an intermediate result overflowed: that is no legal evaluation, also where PyTorch then refuses to go on
    (a decomposition of infinities). Where just a gradient did, the outputs.
    """
    watch = OverflowWatch()
    with watch, contextlib.nullcontext() if order is None else AnyOrder(order):
        try:
            found: list[Tensor] = getattr(case, derivatives)()
        except RuntimeError:
            if not watch.seen:
                raise
            return None
    if watch.gradient:
        found = found[: derivatives == "first"]
    return None if watch.seen else [part for whole in found for part in parts_of(whole)]


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
        if len(actuals) < len(results):
            counts["overflowed gradients"] += 1
        for result, actual in zip(results[: len(actuals)], actuals, strict=True):
            verdict = result.verdict(actual)
            for element in Element:
                counts[element.name.lower()] += int((verdict == element).sum())
            if bool((verdict == Element.VIOLATED).any()):
                return {"seed": seed, "names": case.names, "violated": result.name, "order": order}
    return dict(counts)


def _one(job: tuple[int, str, str]) -> dict[str, Any]:
    torch.set_num_threads(1)
    try:
        return check_program(job[0], getattr(torch, job[1]), derivatives=job[2])
    except Exception as error:
        return {"seed": job[0], "error": f"{type(error).__name__}: {str(error)[:200]}"}


def _collect_less() -> None:
    """Keep the garbage collector from the modules of PyTorch, and from every few of a trace's many small objects."""
    gc.freeze()
    gc.set_threshold(100_000)


def sweep(options: argparse.Namespace, first: int) -> Iterator[dict[str, Any]]:
    """Yield what was found in each program from the seed `first` on, in their order."""
    jobs = [(seed, options.dtype, options.order) for seed in range(first, options.first + options.programs)]
    if options.workers == 1:
        yield from map(_one, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(options.workers, _collect_less) as pool:
        yield from pool.imap(_one, jobs, chunksize=16)


def programs_in(log: pathlib.Path | None) -> int:
    """Return how many programs the lines of a log stand for."""
    return sum(line["seeds"] for line in lines_of(log))


def lines_of(log: pathlib.Path | None) -> list[dict[str, Any]]:
    """Return the lines of a log; none where there is no such file yet."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log is not None and log.exists() else []


class Totals:
    """Counts by verdict over programs, and those that are bad; a chunk at a time goes to the log."""

    def __init__(self, log: pathlib.Path | None) -> None:
        """Start from what the log holds."""
        self.log, self.counts, self.bad = log, collections.Counter[str](), []
        self.seconds, self.began = 0.0, time.monotonic()
        self._start_chunk()
        for line in lines_of(log):
            self.counts.update(line["counts"])
            self.bad += line["bad"]
            self.seconds += line["seconds"]

    def _start_chunk(self) -> None:
        self.chunk: dict[str, Any] = {"seeds": 0, "counts": collections.Counter(), "bad": [], "undecided": []}

    def add(self, seed: int, found: dict[str, Any]) -> None:
        """Take in what was found in one program."""
        self.chunk["seeds"] += 1
        if "seed" in found:
            self.chunk["bad"].append(found)
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
        elif "unsupported" in found:
            self.chunk["counts"][f"unsupported {found['unsupported']}"] += 1
        else:
            self.chunk["counts"].update({"programs": 1, **found})
            self.chunk["undecided"] += [seed] * (found.get("undecided", 0) > 0)
        if self.chunk["seeds"] == CHUNK:
            self.close()

    def close(self) -> None:
        """End the chunk."""
        now = time.monotonic()
        self.counts.update(self.chunk["counts"])
        self.bad += self.chunk["bad"]
        self.seconds += now - self.began
        if self.log is not None and self.chunk["seeds"]:
            line = json.dumps({**self.chunk, "seconds": round(now - self.began, 1)})
            with self.log.open("a") as file:
                file.write(line + "\n")
        self.began = now
        self._start_chunk()


def swept(options: argparse.Namespace) -> Totals:
    """Return the totals of the sweep, with what its log held before."""
    totals, first = Totals(options.log), options.first + programs_in(options.log)
    for seed, found in enumerate(sweep(options, first), first):
        totals.add(seed, found)
    totals.close()
    return totals


def main() -> int:
    """Run and print; exit 1 on any violation or error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=20000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--order", choices=("first", "double", "jvp"), default="first", help="of the derivatives")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tightness", type=int, default=500)
    parser.add_argument("--log", type=pathlib.Path, help="file that a later sweep of the same programs goes on from")
    options = parser.parse_args()
    _collect_less()
    totals = swept(options)
    sys.stdout.write(f"{options.dtype}: {json.dumps(totals.counts)}; {len(totals.bad)} bad; {totals.seconds:.0f} s\n")
    dtype = getattr(torch, options.dtype)
    counts = [planted_errors(seed, dtype) for seed in range(options.tightness)]
    caught, planted = sum(c for c, _ in counts), sum(p for _, p in counts)
    share = 100 * caught / max(1, planted)
    sys.stdout.write(f"tightness: {caught} of {planted} planted errors caught ({share:.2f} %)\n")
    return 1 if totals.bad else 0


if __name__ == "__main__":
    sys.exit(main())
