"""The share of each element in an extremum: 1 / k for the k elements equal to it, 0 for the others.

An element is out of question where its upper end lies below the largest lower end. Where one candidate is left, the
weights are certain. Otherwise each candidate may get any share from 0 to 1; for exact ties of certain values only in
the run at kinks, PyTorch's even split being the convention. Where the extremum is NaN, or may be since nothing is known
of an element, nothing is known: PyTorch's own forms differ (NaN for amax, a share for each NaN for max).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.cones import reduction_cone
from kernels_core.rules.record import Family, Rule

REACH = 1 + 2.0**-24  # midpoints are off by up to 2^-26 of their bounds (filter/run.py): ends are taken that much wider


def weight(local: Local, x: Enclosure, *, dims: tuple[int, ...], sign: int) -> Enclosure:
    """Return mask / count with the hull [0, 1] where it is contested."""
    a = x.mid * sign
    top = a.amax(dims, keepdim=True) if dims else a
    mask = (a == top) | (a.isnan() & top.isnan())
    share = mask / _count(mask, dims)
    contested = _contested(local, a, x.bound, mask, dims)
    bound = torch.where(contested, torch.maximum(share, 1 - share), share * 2.0**-52)
    unknown = top.isnan() if x.bound is None else top.isnan() | _any(x.bound.isinf(), dims)
    if bool(unknown.any()):
        share, bound = torch.where(top.isnan(), torch.nan, share), torch.where(unknown, torch.inf, bound)
    return Enclosure(share, bound)


def _any(condition: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return _count(condition, dims) > 0


def _count(condition: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return condition.to(torch.float64).sum(dims, keepdim=True) if dims else condition.to(torch.float64)


def _contested(
    local: Local, a: torch.Tensor, bound: torch.Tensor | None, mask: torch.Tensor, dims: tuple[int, ...]
) -> torch.Tensor:
    candidates, inexact = mask, torch.zeros((), dtype=torch.bool)
    if bound is not None:
        lowest = (a - bound * REACH).amax(dims, keepdim=True) if dims else a - bound * REACH
        candidates = ~(a + bound * REACH < lowest)
        inexact = _count(candidates & (bound > 0), dims) > 0
    several = candidates & (_count(candidates, dims) > 1)
    ties = several & ~inexact
    local.arithmetic.ties += int(ties.sum())
    unsure = several & inexact
    if bool(unsure.any()):
        local.lose_rad()
    return several if local.kinks else unsure


def _weight_cone(call: Any) -> list[np.ndarray]:
    meta = call.step.operand_metas[0]
    dims = call.step.kwargs["dims"]
    kept = [d for d in range(len(meta.shape)) if d not in dims]
    place = np.unravel_index(call.index, meta.shape) if meta.shape else ()
    groups = np.zeros(len(call.index), dtype=np.int64)
    for d in kept:
        groups = groups * meta.shape[d] + place[d]
    group = reduction_cone(dims, meta, groups) if dims else call.index[:, None]
    return [np.concatenate([call.index[:, None], group], axis=1)]


def _weight_exact(call: Any, values: Any) -> Any:
    """The element itself comes first, then its group."""
    n, sign = call.numbers, call.step.kwargs["sign"]

    def share(row: Any) -> Any:
        own, group = row[0], row[1:]
        if any(n.is_nan(v) for v in group):
            return n.of(math.nan)
        if any(n.less(own, v) if sign > 0 else n.less(v, own) for v in group):
            return n.real(0)
        return n.real(1) / sum(n.equal(own, v) for v in group)

    return np.array([share(row) for row in values], dtype=object)


def ones(local: Local) -> Enclosure:
    """Return ones: the count is already in the weight."""
    return Enclosure(torch.ones(local.shape, dtype=local.nominal))


FAMILY = Family()
FAMILY.add(
    Rule("exactref.extremum_weight", weight, _weight_cone, _weight_exact, classed=True),
    Rule("exactref.ones", ones, lambda call: [], lambda call: np.ones(len(call.index), dtype=object), classed=True),
)
