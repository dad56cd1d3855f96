"""PyTorch's operator database: its eager forward and gradient as the kernel, the same operator as the reference.

    python benchmarks/operators.py --workers 2 [--only REGEX] [--samples 6] [--dtype float32] [--order ORDER]
        [--seconds 60] [--json FILE]

SAMPLES 0 means all that an entry has. After SECONDS of its processor time no further sample of an entry is begun;
an entry that needs four times as long is a timeout.

ORDER is "first" (outputs and gradients), "jvp" (tangents, by PyTorch's forward mode) or "double" (gradients of the
gradients, by its double backward). Entries that PyTorch itself cannot differentiate so are counted as not applicable.

One line for each differentiable entry: certified, rounded, violated, undecided, unconstrained, unsupported, random...
An entry is certified when every element of all outputs and gradients of at least three samples (or of all that it has)
is covered and no element of any sample is violated. The closing lines also count the stricter case: every sample of the
entry is tried, and every element of all of them is covered. An entry is "rounded" where its 16-bit kernel leaves the
admissible set, while its float32 kernel on the same values, rounded once, stays inside everywhere: the 16-bit kernel
rounds on the way.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import math
import multiprocessing
import pathlib
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.rounded_once import NARROW, count_verdicts, rounded_once
from kernels_core.errors import TraceError, UnsupportedOperation
from kernels_core.exact.tier import Budget
from kernels_core.kernel.call import KernelRaisedError, draw_upstream, run_kernel
from kernels_core.reference import Check, Result, reference
from kernels_core.tracing.arguments import call_bound, output_names, with_tensors
from kernels_core.tracing.derivatives import tangent_name

Entry = dict[str, Any]
Compared = tuple[dict[str, Result], dict[str, torch.Tensor | None]]
ORDER = (
    "violated",
    "error",
    "timeout",
    "rounded",
    "unsupported",
    "random",
    "untraceable",
    "undecided",
    "unconstrained",
    "certified",
    "not applicable",
)


# The sign of their vectors is the algorithm's: judged is what PyTorch's own tests make of them, absolute values.
FREE_SIGNS = frozenset({"linalg.eig", "linalg.eigh", "linalg.svd", "svd"})


class OutOfTimeError(BaseException):
    """The entry's time is over (not an Exception, so that nothing in between takes it for a failed trace)."""


def entries(dtype: torch.dtype) -> list[Any]:
    """Return the differentiable entries of the database."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [
        op
        for op in op_db
        if op.supports_autograd and dtype in op.supported_dtypes("cpu") and dtype in op.supported_backward_dtypes("cpu")
    ]


def title(op: Any) -> str:
    """Return the name of an entry with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def samples(op: Any, dtype: torch.dtype, count: int = 0) -> Iterator[Any]:
    """Yield up to `count` samples (0: all) whose eager run works, those with elements first."""
    empty = []
    found = 0
    torch.manual_seed(0)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
        leaves = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        if not any(t.numel() for t in leaves):
            empty.append(sample)
            continue
        yield sample
        found += 1
        if found == count:
            return
    yield from empty[: count - found] if count else empty


class NotApplicableError(Exception):
    """PyTorch itself cannot differentiate this in the order asked for."""


def first_order(function: Any, arguments: Any, check: Check) -> Compared:
    """Return outputs and gradients, ours and PyTorch's."""
    upstream = draw_upstream(check, 0)
    outputs, gradients = run_kernel(function, arguments, arguments, check, upstream)
    return check.both(upstream), {**outputs, **(gradients or {})}


def forward_mode(function: Any, arguments: Any, check: Check) -> Compared:
    """Return the tangents of the outputs, ours and those of PyTorch's forward mode."""
    tangents = _vectors(check, check.wrt)
    try:
        with forward_ad.dual_level():
            duals = {n: forward_ad.make_dual(check.tensors[n], t) for n, t in tangents.items()}
            names, outputs = output_names(call_bound(function, with_tensors(arguments, {**check.tensors, **duals})))
            found = {tangent_name(n): forward_ad.unpack_dual(o).tangent for n, o in zip(names, outputs, strict=True)}
    except Exception as error:
        raise NotApplicableError(str(error)) from error
    if not tangents or not check.cotangents:
        raise NotApplicableError("nothing to differentiate")
    return check.tangents(tangents), found


def second_order(function: Any, arguments: Any, check: Check) -> Compared:
    """Return the gradients of the gradients, ours and those of PyTorch's double backward."""
    upstream = draw_upstream(check, 0)
    leaves = {n: t.detach().clone().requires_grad_(n in check.wrt) for n, t in check.tensors.items()}
    wanted = [leaves[n] for n in check.wrt]
    grads = [g.clone().requires_grad_() for g in upstream]
    try:
        _, outputs = output_names(call_bound(function, with_tensors(arguments, leaves)))
        pairs = [(o, g) for o, g in zip((o for o in outputs if o.is_floating_point()), grads, strict=True)
                 if o.requires_grad]  # fmt: skip
        first = _grad([o for o, _ in pairs], wanted, [g for _, g in pairs], create_graph=True)
        used = {f"grad_{n}": g for n, g in zip(check.wrt, first, strict=True) if g is not None and g.requires_grad}
        vectors = _vectors(check, [n.removeprefix("grad_") for n in used], "grad_")
        second = _grad(list(used.values()), [*wanted, *grads], list(vectors.values()))
    except Exception as error:
        raise NotApplicableError(str(error)) from error
    if not vectors:
        raise NotApplicableError("the gradient depends on nothing")
    results = check.second_order(upstream, vectors)
    return results, dict(zip(results, second, strict=True))


def _grad(outputs: Any, inputs: Any, grads: Any, **options: Any) -> Any:
    return torch.autograd.grad(outputs, inputs, grads, allow_unused=True, **options)


def _vectors(check: Check, names: Sequence[str], prefix: str = "") -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = {n: check.tensors[n] for n in names}
    return {prefix + n: torch.randn(t.shape, generator=generator).to(t.dtype) for n, t in shapes.items()}


ORDERS: Mapping[str, Callable[[Any, Any, Check], Compared]] = {
    "first": first_order,
    "jvp": forward_mode,
    "double": second_order,
}


def check_sample(op: Any, sample: Any, order: str = "first") -> collections.Counter[str]:
    """Return how many elements of a sample's results have each verdict."""
    settle = sample.output_process_fn_grad if title(op) in FREE_SIGNS else lambda value: value

    def function(given: Any, args: Any, kwargs: Any) -> Any:
        return torch.utils._pytree.tree_map(_real, settle(op(given, *args, **kwargs)))

    arguments = {"given": sample.input, "args": list(sample.args), "kwargs": dict(sample.kwargs)}
    arguments = torch.utils._pytree.tree_map(_own_memory, arguments)
    check = Check(reference(function), arguments, budget=Budget(seconds=5.0))
    check.wrt = [name for name in check.wrt if check.tensors[name].requires_grad]
    check.tensors = {name: t.detach() for name, t in check.tensors.items()}
    results, actuals = ORDERS[order](function, arguments, check)
    counts = count_verdicts(results, actuals)
    if counts["violated"] and order == "first" and any(t.dtype in NARROW for t in check.tensors.values()):
        once = count_verdicts(results, rounded_once(function, arguments, check))
        if not once["violated"]:
            counts["rounded"] = counts.pop("violated")
    return counts


def _real(value: Any) -> Any:
    """Return a complex tensor as pairs of real numbers, which is how it is judged."""
    if isinstance(value, torch.Tensor) and value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value


def _own_memory(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def judge(op: Any, dtype: torch.dtype, count: int, order: str = "first", seconds: float = math.inf) -> Entry:
    """Return the entry's verdict and its reasons; after `seconds` of processor time no further sample is begun."""
    verdicts: collections.Counter[str] = collections.Counter()
    notes: list[str] = []
    begun, start = 0, time.process_time()
    for number, sample in enumerate(samples(op, dtype, count)):
        if time.process_time() - start > seconds:
            break
        begun += 1
        verdict, note = _judge_sample(op, sample, order)
        verdicts[verdict] += 1
        if note:
            notes.append(f"sample {number}: {note}")
    left = sum(1 for _ in samples(op, dtype)) - begun
    verdicts.pop("skipped", None)
    if sum(verdicts.values()) > verdicts["not applicable"]:
        verdicts.pop("not applicable", None)
    total = sum(verdicts.values())
    if total == 0:
        return {"verdict": "unsupported", "notes": ["no sample"], "samples": {}}
    worst = next(v for v in ORDER if verdicts[v])
    bad = verdicts["violated"] or verdicts["rounded"] or verdicts["error"]
    enough = verdicts["certified"] >= min(3, total) and not bad
    return {"verdict": "certified" if enough else worst, "samples": dict(verdicts), "left": left, "notes": notes}


def _judge_sample(op: Any, sample: Any, order: str) -> tuple[str, str]:
    try:
        counts = check_sample(op, sample, order)
    except KernelRaisedError:
        return "skipped", ""
    except NotApplicableError as error:
        return "not applicable", str(error).splitlines()[0][:100]
    except UnsupportedOperation as error:
        return ("random" if "random" in str(error) else "unsupported"), error.operation
    except TraceError as error:
        return "untraceable", str(error).splitlines()[0]
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        ours = [f for f in traceback.extract_tb(error.__traceback__) if "kernels_core" in f.filename]
        where = " < ".join(f"{pathlib.Path(f.filename).name}:{f.lineno}" for f in (frame, *ours[::-1][:2]))
        return "error", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]} at {where}"
    details = ", ".join(f"{n} {key}" for key, n in counts.items() if " " in key)
    for verdict in ("violated", "rounded", "undecided", "unconstrained"):
        if counts[verdict]:
            return verdict, details
    return "certified", ""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError after this processor time, and again each second until it is heard."""

    def over(*_: Any) -> None:
        raise OutOfTimeError

    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


_ENTRIES: dict[torch.dtype, list[Any]] = {}


def _one(job: tuple[int, str, int, float, str]) -> Entry:
    number, dtype_name, count, seconds, order = job
    dtype = getattr(torch, dtype_name)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if dtype not in _ENTRIES:
        _ENTRIES[dtype] = entries(dtype)
    op = _ENTRIES[dtype][number]
    start = time.monotonic()
    try:
        with time_limit(4 * seconds):
            found = judge(op, dtype, count, order, seconds)
    except OutOfTimeError:
        found = {"verdict": "timeout", "notes": [f"more than {4 * seconds} s"], "samples": {}}
    except Exception as error:
        found = {"verdict": "error", "notes": [f"{type(error).__name__}: {error}"[:300]], "samples": {}}
    return {"name": title(op), "dtype": dtype_name, **found, "seconds": round(time.monotonic() - start, 2)}


def _line(found: Entry) -> str:
    of = f"{found['samples'].get('certified', 0)}/{sum(found['samples'].values()) + found.get('left', 0)}"
    note = "; ".join(dict.fromkeys(found["notes"]))[:400]
    return f"{found['verdict']:14} {found['name']:45} {of:9} {found['seconds']:5} s  {note}\n"


def complete(entry: Entry) -> bool:
    """Return True where every sample that the entry has was tried and certified."""
    return set(entry["samples"]) == {"certified"} and not entry["left"]


def missing(found: list[Entry]) -> collections.Counter[str]:
    """Return how many entries each operation without a rule keeps from being certified."""
    counts: collections.Counter[str] = collections.Counter()
    for entry in found:
        if entry["verdict"] == "unsupported":
            counts.update({note.split(": ", 1)[-1] for note in entry["notes"]})
    return counts


def main() -> int:
    """Run and print; exit 1 on any violation or error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="regular expression on the entry's name")
    parser.add_argument("--samples", type=int, default=6, help="of an entry, at least 3; 0: all")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--order", choices=list(ORDERS), default="first", help="of the derivatives")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of one entry")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    start, dtype = time.monotonic(), getattr(torch, options.dtype)
    chosen = [n for n, op in enumerate(entries(dtype)) if re.search(options.only, title(op))]
    count = max(3, options.samples) if options.samples else 0
    jobs = [(n, options.dtype, count, options.seconds, options.order) for n in chosen]
    found = []
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for entry in pool.imap_unordered(_one, jobs):
            found.append(entry)
            sys.stdout.write(_line(entry))
            sys.stdout.flush()
    totals = collections.Counter(entry["verdict"] for entry in found)
    sys.stdout.write(f"{len(found)} entries: " + ", ".join(f"{totals[v]} {v}" for v in reversed(ORDER) if totals[v]))
    tried = sum(sum(entry["samples"].values()) for entry in found)
    left = sum(entry.get("left", 0) for entry in found)
    sys.stdout.write(
        f"; {time.monotonic() - start:.0f} s\n"
        f"{sum(map(complete, found))} entries certified in every sample that they have; "
        f"{sum(entry['samples'].get('certified', 0) for entry in found)} of {tried} samples tried, {left} not tried\n"
        f"operations without a rule: {dict(missing(found).most_common())}\n"
    )
    if options.json:
        options.json.write_text(json.dumps(sorted(found, key=lambda e: e["name"]), indent=1))
    return 1 if totals["violated"] or totals["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
