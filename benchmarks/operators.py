"""PyTorch's operator database: its eager forward and gradient as the kernel, the same operator as the reference.

    python benchmarks/operators.py --workers 2 [--only REGEX] [--samples 6] [--dtype float32] [--order ORDER]
        [--seconds 60] [--log FILE]

SAMPLES 0 means all that an entry has. After SECONDS of its processor time no further sample of an entry is begun;
an entry that needs four times as long is a timeout. With a log the sweep goes on where an earlier one stopped.

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
import math
import multiprocessing
import pathlib
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.operator_log import ORDER, Entry, append, line, read_log, summary
from benchmarks.operator_orders import ORDERS, NotApplicableError
from benchmarks.rounded_once import NARROW, count_verdicts, rounded_once
from kernels_core.errors import TraceError, UnsupportedOperation, UsageError
from kernels_core.exact.tier import Budget
from kernels_core.kernel.call import KernelRaisedError
from kernels_core.reference import Check, reference
from kernels_core.tracing.arguments import named_tensors
from kernels_core.tracing.complex_parts import differentiable

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


def check_of(function: Any, arguments: dict[str, Any], **options: Any) -> Check:
    """Return the check of a sample, which says by its tensors what is differentiated."""
    tensors = named_tensors(arguments)
    wrt = [name for name, t in tensors.items() if t.requires_grad and differentiable(t.dtype)]
    check = Check(reference(function), arguments, wrt=wrt, **options)
    check.tensors = {name: t.detach() for name, t in tensors.items()}
    return check


def check_sample(op: Any, sample: Any, order: str = "first") -> collections.Counter[str]:
    """Return how many elements of a sample's results have each verdict."""
    settle = sample.output_process_fn_grad if title(op) in FREE_SIGNS else lambda value: value

    def function(given: Any, args: Any, kwargs: Any) -> Any:
        return torch.utils._pytree.tree_map(_real, settle(op(given, *args, **kwargs)))

    arguments = {"given": sample.input, "args": list(sample.args), "kwargs": dict(sample.kwargs)}
    arguments = torch.utils._pytree.tree_map(_own_memory, arguments)
    check = check_of(function, arguments, budget=Budget(seconds=5.0))
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
        return ("random" if "random" in str(error) else "untraceable"), str(error).splitlines()[0]
    except UsageError as error:
        if "sparse" not in str(error):
            raise
        return "unsupported", str(error).splitlines()[0]
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


def swept(options: argparse.Namespace) -> list[Entry]:
    """Return the entries of the sweep; those that the log has are not run again, the others go to it one by one."""
    dtype = getattr(torch, options.dtype)
    found = [entry for entry in read_log(options.log) if entry["dtype"] == options.dtype]
    known = {entry["name"] for entry in found}
    chosen = [n for n, op in enumerate(entries(dtype)) if re.search(options.only, title(op)) and title(op) not in known]
    count = max(3, options.samples) if options.samples else 0
    jobs = [(n, options.dtype, count, options.seconds, options.order) for n in chosen]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for entry in pool.imap_unordered(_one, jobs):
            found.append(entry)
            append(options.log, entry)
            sys.stdout.write(line(entry))
            sys.stdout.flush()
    return found


def main() -> int:
    """Run and print; exit 1 on any violation or error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression on the entry's name")
    parser.add_argument("--samples", type=int, default=6, help="of an entry, at least 3; 0: all")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--order", choices=list(ORDERS), default="first", help="of the derivatives")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of one entry")
    parser.add_argument("--log", type=pathlib.Path, help="file that a later sweep of the same entries goes on from")
    found = swept(parser.parse_args())
    sys.stdout.write(summary(found))
    return int(any(entry["verdict"] in ("violated", "error") for entry in found))


if __name__ == "__main__":
    sys.exit(main())
