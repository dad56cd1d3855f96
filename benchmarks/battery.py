"""The contract battery over PyTorch's operator database, and what the battery costs.

    python -m benchmarks.battery [--only REGEX] [--samples 1] [--workers 1]
    python -m benchmarks.battery --cost [CASE ...]

Every differentiable entry is a kernel that is its own reference, so a failing item is a fault of PyTorch or of ours;
docs/findings.md explains those of PyTorch. Without --cost the exit code is 1 where an item fails that KNOWN does not
list. With --cost each case of benchmarks/cost.py, of tests/specs/cases and of three examples is verified without and
with the battery.
"""

from __future__ import annotations

import argparse
import collections
import gc
import multiprocessing
import pathlib
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks import cost
from benchmarks.operators import OutOfTimeError, entries, samples, time_limit, title
from exactref_cli import plan
from kernels_core.battery import Settings
from kernels_core.errors import ExactRefError
from kernels_core.report import Outcome, Report
from kernels_core.verify import verify

LIMIT = 25.0  # times the plain check
WORST = ("error", "fail", "undecided", "timeout", "pass", "not certified")

# Failures that are PyTorch's own, each explained in docs/findings.md (entry -> items), and what lies in the operation:
# `as_strided` reads the memory behind its input by definition: another layout is another input to it.
_MEMORY = frozenset({"grad_output_layout", "input_layout", "canaries"})
KNOWN: Mapping[str, frozenset[str]] = {
    "as_strided": _MEMORY,
    "as_strided.partial_views": _MEMORY,
    "as_strided_copy": _MEMORY,
    "as_strided_scatter": _MEMORY,
    "cumprod": frozenset({"double_backward"}),
    "diagonal_scatter": frozenset({"input_layout"}),
    "kron": frozenset({"changed_in_place"}),
    "native_group_norm": frozenset({"input_layout", "undefined_grad_output"}),
    "nn.functional.linear_cross_entropy.chunked": frozenset({"double_backward", "forward_mode"}),
    "nn.functional.linear_cross_entropy.chunked_none": frozenset({"double_backward", "forward_mode"}),
    "sgn": frozenset({"aliasing"}),
}

Found = dict[str, Any]


def check(op: Any, sample: Any, battery: str) -> Report:
    """Return the report of one sample, the operation being its own reference."""

    def function(given: Any, args: Any, kwargs: Any) -> Any:
        return op(given, *args, **kwargs)

    given = {"given": sample.input, "args": list(sample.args), "kwargs": dict(sample.kwargs)}
    paths = [(name + pytree.keystr(path), leaf) for name, value in given.items()
             for path, leaf in pytree.tree_flatten_with_path(value)[0]]  # fmt: skip
    wrt = [n for n, t in paths if isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point()]
    plain = pytree.tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, given)
    return verify(function, plain, wrt=wrt, battery=battery, settings=Settings())  # values as the database has them


def judge(op: Any, dtype: torch.dtype, count: int) -> Found:
    """Return what the battery says of an entry: its worst outcome, and why."""
    words: list[str] = []
    notes: list[str] = []
    for sample in samples(op, dtype, count):
        try:
            report = check(op, sample, "all")
        except ExactRefError:
            continue
        if not report.battery:
            continue
        failing = [row for row in report.battery if row.outcome in (Outcome.FAIL, Outcome.UNDECIDED)]
        words += [row.outcome.value for row in failing] or ["pass"]
        notes += [f"{row.outcome.value} {row.name}: {row.evidence}" for row in failing]
    return {"verdict": next((word for word in WORST if word in words), "not certified"), "notes": notes}


def _one(job: tuple[int, int, float]) -> Found:
    number, count, seconds = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    op, start = entries(torch.float32)[number], time.monotonic()
    try:
        with time_limit(seconds):
            found = judge(op, torch.float32, count)
    except OutOfTimeError:
        found = {"verdict": "timeout", "notes": [f"more than {seconds} s"]}
    except Exception as error:
        found = {"verdict": "error", "notes": [f"{type(error).__name__}: {error}"[:300]]}
    return {"name": title(op), **found, "seconds": round(time.monotonic() - start, 2)}


def unexplained(found: Found) -> bool:
    """Return True for an error, and for a failing item that KNOWN does not list."""
    items = {note.split(": ")[0].removeprefix("fail ") for note in found["notes"] if note.startswith("fail ")}
    return found["verdict"] == "error" or not items <= KNOWN.get(found["name"], frozenset())


def sweep(only: str, count: int, workers: int, seconds: float) -> int:
    """Run the battery over the entries whose names fit; return the exit code."""
    chosen = [n for n, op in enumerate(entries(torch.float32)) if re.search(only, title(op))]
    totals: collections.Counter[str] = collections.Counter()
    open_ = []
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for found in pool.imap_unordered(_one, [(n, count, seconds) for n in chosen]):
            totals[found["verdict"]] += 1
            open_ += [found["name"]] * unexplained(found)
            notes = "\n    ".join(found["notes"])
            print(f"{found['verdict']:14} {found['name']:45} {found['seconds']:6} s" + (f"\n    {notes}" * bool(notes)))
            sys.stdout.flush()
    print(
        f"{sum(totals.values())} entries: "
        + ", ".join(f"{totals[word]} {word}" for word in WORST[::-1] if totals[word])
    )
    print(f"not explained: {', '.join(open_)}" if open_ else "every failure is explained")
    return int(bool(open_))


def cost_of(run: Callable[[str], Report]) -> tuple[float, float, int]:
    """Return (seconds of the plain check, seconds with the battery, items skipped): medians, after a warm-up."""
    run("none")
    gc.collect()
    gc.freeze()  # what earlier cases left, which every collection would walk through
    plain = statistics.median(_seconds(lambda: run("none")) for _ in range(5))
    reports: list[Report] = []
    whole = statistics.median(_seconds(lambda: reports.append(run("all"))) for _ in range(3))
    report = reports[-1]
    return plain, whole, sum(row.outcome is Outcome.SKIPPED for row in report.battery)


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def costs(names: list[str]) -> int:
    """Print what the battery costs as a multiple of the plain check; return 1 where that is above the limit."""
    worst = 0.0
    print(f"{'case':<40}{'plain ms':>10}{'battery ms':>12}{'ratio':>8}{'skipped':>9}")
    for name, run in _cost_cases():
        if names and not any(re.search(wanted, name) for wanted in names):
            continue
        plain, whole, skipped = cost_of(run)
        ratio = (whole - plain) / plain
        worst = max(worst, ratio)
        print(f"{name:<40}{1e3 * plain:>10.1f}{1e3 * (whole - plain):>12.1f}{ratio:>8.1f}{skipped:>9}")
    print(f"largest ratio {worst:.1f}, limit {LIMIT:.0f}")
    return int(worst > LIMIT)


def _cost_cases() -> list[tuple[str, Callable[[str], Report]]]:
    found: list[tuple[str, Callable[[str], Report]]] = []
    for name, case in cost.CASES.items():
        found.append((f"{name} (large)", lambda battery, case=case: _verified(case, 1, battery)))
        found.append((f"{name} (small)", lambda battery, case=case: _verified(case, 32, battery)))
    root = pathlib.Path(__file__).resolve().parent.parent
    specs = [*sorted((root / "tests" / "specs" / "cases").glob("*.yaml")), root / "configs" / "matmul.yaml",
             root / "configs" / "norms.yaml", root / "configs" / "attention.yaml"]  # fmt: skip
    for one in plan.from_specs(specs):
        if "-Wrong-" not in one.name:
            found.append((one.name, lambda battery, one=one: _of_spec(one, battery)))
    return found


def _verified(case: cost.Case, scale: int, battery: str) -> Report:
    return verify(case.function, case.inputs(scale), reference=case.function, battery=battery)


def _of_spec(one: Any, battery: str) -> Report:
    drawn = one.inputs()
    return verify(one.function, drawn.values, reference=one.reference, reference_backward=one.reference_backward,
                  wrt=drawn.wrt, battery=battery,
                  settings=Settings(sizes=one.sizes, free=one.free, ranged=one.ranged))  # fmt: skip


def main() -> int:
    """Run the sweep, or print the costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="with --cost: regular expressions on the names of cases")
    parser.add_argument("--cost", action="store_true", help="print what the battery costs")
    parser.add_argument("--only", default="", help="regular expression on the entry's name")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="time limit of one entry")
    options = parser.parse_args()
    if options.cost:
        torch.set_num_threads(1)
        return costs(options.cases)
    return sweep(options.only, options.samples, options.workers, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
