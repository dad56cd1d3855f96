"""How large a missed fault is: beside the bound, beside what an honest kernel shows, and in the audit's own bits."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from kernels_core.audit.continuous import continuous
from kernels_core.program import Program
from kernels_core.reference import Result
from kernels_core.report import SUSPECT_BITS, Precision

Tensor = torch.Tensor


def described(
    program: Program,
    results: Mapping[str, Result],
    undamaged: Tensor,
    name: str,
    damaged: Tensor,
    found: Precision | None,
) -> str:
    """Return the size of a fault in one tensor.

    The fault is damaged - undamaged, an honest error undamaged - exact; both in units of the element's bound. The fault
    counts where it is largest, the honest errors by their root mean square over the tensor.
    """
    enclosure = results[name].enclosure
    bound = enclosure.bound_or_zero().expand(enclosure.shape)
    usable = (bound > 0) & bound.isfinite()
    if not bool(usable[damaged != undamaged].any()):
        return f"{name} moved only where its bound is infinite: a kink"
    fault = ((damaged.double() - undamaged.double()).abs() / bound)[usable]
    honest = ((undamaged.double() - enclosure.mid).abs() / bound)[usable]
    largest, rms = _largest(fault), math.sqrt(float(honest.square().mean())) if len(honest) else 0.0
    bits = max((*found.bits, found.unrounded_bits), default=-math.inf) if found is not None else -math.inf
    decided = "" if name in continuous(program) else ", behind a decision on computed values"
    times = f"{largest / rms:.2g}" if rms else "many"
    return (
        f"{name} moved by {largest:.2g} bounds, {times} honest errors: {bits:.1f} of {SUSPECT_BITS:.0f} bits{decided}"
    )


def _largest(values: Tensor) -> float:
    return float(values.max()) if len(values) else 0.0
