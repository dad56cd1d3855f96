"""Who attains the extremum of a group of elements that go to one place (rewrites/scattered_extrema.py).

With x in [x - b, x + b], an element is out of question where x + b lies below the largest x - b of its group. Where one
candidate is left, what was there before included, it is the extremum in every legal evaluation, and the others are not.
Otherwise the comparison stays what it is: a tie.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotSeparatedError
from kernels_core.filter.arithmetic import Local
from kernels_core.program import Ref
from kernels_core.rules.comparisons import compared
from kernels_core.rules.cones import integer_value
from kernels_core.rules.extremum_weights import REACH
from kernels_core.rules.record import Family, Rule

Tensor = torch.Tensor


def attained(
    local: Local, own: Enclosure, other: Enclosure, base: Enclosure, index: Enclosure, **settings: Any
) -> Enclosure:
    """Return own == other, certain where roundings cannot change which element of the group is the extremum."""
    found = compared(local, torch.eq, own, other, kinked=True)
    if found.unsure is None or (index.unsure is not None and bool(index.unsure.any())):
        return found
    candidate, rivals = _candidates(own, base, index.mid, **settings)
    settled = (~candidate | (rivals == 1)) & own.mid.isfinite()
    value = torch.where(settled, candidate, found.mid)
    return Enclosure(value, None, found.unsure & ~settled)


def _candidates(
    own: Enclosure, base: Enclosure, index: Tensor, *, dim: int, sign: int, include: bool
) -> tuple[Tensor, Tensor]:
    """Return which elements may be the extremum, and how many may in the group of each."""
    (low, high), (low_before, high_before) = (_ends(value, sign) for value in (own, base))
    dim = dim % own.mid.dim()
    if index.dim() != own.mid.dim() or index.shape != own.shape:  # slices of index_reduce
        index = index.reshape([-1 if d == dim else 1 for d in range(own.mid.dim())]).expand(own.shape)
    index = index.long()
    lowest = low_before if include else torch.full_like(low_before, -math.inf)
    lowest = lowest.scatter_reduce(dim, index, low, "amax")
    candidate = ~(high < lowest.gather(dim, index))
    before = (~(high_before < lowest) if include else torch.zeros_like(lowest, dtype=torch.bool)).to(torch.int64)
    count = before.scatter_add(dim, index, candidate.to(torch.int64))
    return candidate, count.gather(dim, index)


def _ends(value: Enclosure, sign: int) -> tuple[Tensor, Tensor]:
    middle, bound = (value.mid * sign).to(torch.float64), value.bound_or_zero() * REACH
    return middle - bound, middle + bound


def _exact(call: Any, *_: Any) -> Any:
    """Return what the filter is certain of.

    Raises:
        NotSeparatedError: a tie that it leaves open.
    """
    unsure = call.integers[Ref(call.step.number, call.output)].unsure
    if unsure is not None and bool(unsure.cpu().reshape(-1)[torch.from_numpy(call.index)].any()):
        raise NotSeparatedError
    return integer_value(call)


def _no_cone(call: Any) -> list[np.ndarray]:
    return [np.full((len(call.index), 0), -1, dtype=np.int64) for _ in call.step.operand_metas]


FAMILY = Family()
FAMILY.add(Rule("exactref.attained", attained, _no_cone, _exact))
