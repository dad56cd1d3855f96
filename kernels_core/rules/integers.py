"""Operations on integers as a whole: PyTorch itself computes them, exactly."""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Local


def whole_integers(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
    """Return the operation on integers; every element is unsure where any operand is."""
    mids = [v.mid if isinstance(v, Enclosure) else v for v in args]
    mid = local.step.op(*mids, **kwargs)  # type: ignore[misc]
    unsure = any(isinstance(v, Enclosure) and v.unsure is not None and bool(v.unsure.any()) for v in args)
    return Enclosure(mid, None, torch.ones_like(mid, dtype=torch.bool) if unsure else None)
