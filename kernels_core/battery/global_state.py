"""What a kernel leaves behind in the process: settings of PyTorch, and the state of random number generators."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from kernels_core.battery.item import Finding, Item
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.subject import Subject
from kernels_core.kernel import global_state

Tensor = torch.Tensor


def _global_state(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    with global_state.collected() as changes:
        ends = _generators(subject)
    for name, (before, after) in changes.items():
        judgement.fault(f"the kernel leaves the {name} at {after}, it was {before}")
    for name, outcome in ends:
        (judgement.fault if outcome == "reseeds" else judgement.remark)(f"the kernel {outcome} {name}")
    return judgement.finding("settings of PyTorch and random number generators are as they were")


def _generators(subject: Subject) -> list[tuple[str, str]]:
    """Return what the kernel does to each generator: "draws from" it, or "reseeds" it.

    Two runs from different states that end in the same one have forgotten where they began.
    """
    kept = random.getstate(), np.random.get_state()
    try:
        ends = [_after(subject, seed) for seed in (0x51, 0x52)]
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
    found = []
    for name in ends[0]:
        (start, end), (_, other_end) = ends[0][name], ends[1][name]
        if end != start:
            found.append((f"the random numbers of {name}", "reseeds" if end == other_end else "draws from"))
    return found


def _after(subject: Subject, seed: int) -> dict[str, tuple[object, object]]:
    """Return the state of each generator before and after a run that begins with this seed."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    before = _states()
    subject.run()
    return {name: (before[name], after) for name, after in _states().items()}


def _states() -> dict[str, object]:
    kept: Any = np.random.get_state()
    return {
        "PyTorch": bytes(torch.random.get_rng_state().numpy()),
        "Python": random.getstate(),
        "NumPy": (kept[1].tobytes(), kept[2]),
    }


ITEMS = (
    Item("global_state", "default dtype, grad mode, autocast, threads, precision, random seeds are left as they were",
         _global_state),
)  # fmt: skip
