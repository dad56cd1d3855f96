"""Rounding and subnormals in every thread that evaluates: the main one, PyTorch's, and those that Python starts."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import torch

from kernels_core.doctor.measurement import Measurement
from kernels_core.filter.float_environment import CLAIMS, OPERANDS, REMEDIES, WANTED, broken, evaluated

_GRAIN = 1 << 15  # elements that PyTorch gives one thread at least (at::internal::GRAIN_SIZE)


def in_pytorchs_threads() -> tuple[int, ...]:
    """Return the claims that do not hold in one of the threads that PyTorch splits an operation among."""
    size = 4 * _GRAIN * torch.get_num_threads()
    found = evaluated([x.repeat(size // len(x) + 1) for x in OPERANDS])
    wanted = [torch.tensor(want).repeat(size // len(want) + 1) for want in WANTED]
    return tuple(n for n, (have, want) in enumerate(zip(found, wanted, strict=True)) if not torch.equal(have, want))


def in_new_threads() -> tuple[int, ...]:
    """Return the claims that do not hold in a thread that Python starts, as the evaluation of tiles does."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(broken).result()


def measured() -> list[Measurement]:
    """Return what holds, in the main thread and in the others."""
    places = {
        "main thread": broken(),
        f"PyTorch's {torch.get_num_threads()} threads": in_pytorchs_threads(),
        "a new thread": in_new_threads(),
    }
    tried = [len(want) for want in WANTED]
    found = []
    for number, claim in enumerate(CLAIMS):
        wrong = [name for name, failed in places.items() if number in failed]
        where = f"not in {', '.join(wrong)}: {REMEDIES[number]}" if wrong else ", ".join(places)
        found.append(Measurement("arithmetic", claim, math.inf if wrong else 0.0, 0.0, "", where, tried[number]))
    return found
