"""What audit and sensitivity add to the CPU time of a verification.

    python -m benchmarks.audit_cost

One thread, one process, medians over pairs measured back to back. Returns 1 where they add more than 30 %.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.cost import CASES, Case, seconds
from kernels_core.verify import verify

Tensor = torch.Tensor
MOST_ADDED = 0.3  # of the time of a check


def main() -> int:
    """Print the CPU time of `verify` without and with audit and sensitivity; return 1 where they add too much."""
    torch.set_num_threads(1)
    worst = 0.0
    print(f"{'case':<12}{'without ms':>11}{'with ms':>9}{'added':>8}")
    for name, case in CASES.items():
        inputs = case.inputs()
        upstream = [torch.randn(case.function(**inputs).shape)]

        def once(audit: bool, case: Case = case, inputs: Mapping[str, Tensor] = inputs, grads: Any = upstream) -> float:
            work = functools.partial(verify, case.function, inputs, reference=case.function, grads=grads, audit=audit)
            return 1e3 * seconds(work, time.thread_time)

        once(True), once(False)
        pairs = [(once(False), once(True)) for _ in range(9)]
        added = statistics.median(full / bare - 1 for bare, full in pairs)
        bare, full = (statistics.median(times) for times in zip(*pairs, strict=True))
        print(f"{name:<12}{bare:>11.0f}{full:>9.0f}{added:>8.0%}", flush=True)
        worst = max(worst, added)
    return int(worst > MOST_ADDED)


if __name__ == "__main__":
    sys.exit(main())
