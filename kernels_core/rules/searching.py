"""Equality and search among values: mode, unique, nonzero, searchsorted, bucketize."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, nothing_known
from kernels_core.exact.numbers import NotSeparatedError
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.comparisons import may_flip
from kernels_core.rules.cones import integer_value
from kernels_core.rules.movement import require_traced_shape
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family, Rule


def mode(local: Local, a: Enclosure, dim: int = -1, keepdim: bool = False) -> tuple[Enclosure, Enclosure]:
    """The most frequent value: certain for exact operands, and its index where it occurs once."""
    values, order = torch.mode(a.mid, dim, keepdim)
    bound = parts(a)[1]
    compared = values if keepdim or not a.mid.dim() else values.unsqueeze(dim)
    count = (a.mid == compared).sum(dim) if a.mid.dim() else torch.ones_like(order)
    several = (count.reshape(order.shape) != 1) if a.mid.dim() else torch.zeros_like(order, dtype=torch.bool)
    if bound is None:
        return Enclosure(values), Enclosure(order, None, several)
    loose = (bound.expand(a.shape) != 0).any(dim, keepdim=keepdim) if a.mid.dim() else bound != 0
    if not a.floating:
        return Enclosure(values, None, loose), Enclosure(order, None, several | loose)
    return Enclosure(values, torch.where(loose, torch.inf, 0.0).to(torch.float64)), Enclosure(
        order, None, several | loose
    )


def searchsorted(local: Local, boundaries: Any, value: Any, **kwargs: Any) -> Enclosure:
    """The place of a value among sorted boundaries: unsure where moving by both bounds changes it."""
    return _place(
        local, boundaries, value, lambda b, v: torch.searchsorted(b, v, **{k: _plain(x) for k, x in kwargs.items()})
    )


def bucketize(local: Local, value: Any, boundaries: Any, **kwargs: Any) -> Enclosure:
    """As searchsorted."""
    return _place(local, boundaries, value, lambda b, v: torch.bucketize(v, b, **kwargs))


def unique(local: Local, a: Enclosure, *args: Any, **kwargs: Any) -> list[Enclosure]:
    """The distinct values of exact operands; how many there are is part of the program."""
    found = local.step.op(a.mid, *args, **kwargs)  # type: ignore[misc]
    if a.unsure is None and a.bound is None:
        return [Enclosure(part) for part in found]
    unknown = [torch.full_like(part, torch.inf, dtype=torch.float64) for part in found]
    return [
        Enclosure(p, u) if p.is_floating_point() else Enclosure(p, None, u > 0)
        for p, u in zip(found, unknown, strict=True)
    ]


def nonzero(local: Local, a: Enclosure) -> Enclosure:
    """The places of what is not zero, all of them unsure where one is; how many there are is part of the program."""
    places = torch.nonzero(a.mid)
    if not bool(may_flip(a).any()):
        return Enclosure(places)
    found = nothing_known(places)
    require_traced_shape(local, found)
    return found


def _plain(value: Any) -> Any:
    return value.mid if isinstance(value, Enclosure) else value


def _place(local: Local, boundaries: Enclosure, value: Any, find: Any) -> Enclosure:
    mid = find(boundaries.mid, _plain(value))
    bounds = [parts(v)[1] for v in (boundaries, value) if isinstance(v, Enclosure)]
    if all(b is None for b in bounds):
        return Enclosure(mid)
    x, x_bound = parts(value)
    reach = (0.0 if x_bound is None else x_bound) + boundaries.bound_or_zero().amax()
    x = torch.as_tensor(x, dtype=torch.float64)
    low, high = find(boundaries.mid.double(), x - reach * INFLATE), find(boundaries.mid.double(), x + reach * INFLATE)
    touching = find(
        boundaries.mid.double(), torch.nextafter(x + reach * INFLATE, torch.tensor(torch.inf, dtype=torch.float64))
    )
    unknown = torch.as_tensor(reach).isinf() | torch.as_tensor(reach).isnan()
    return Enclosure(mid, None, (low != mid) | (high != mid) | (touching != mid) | unknown)


def _exact_mode(call: Any, *_: Any) -> Any:
    if call.meta.dtype.is_floating_point:
        raise NotSeparatedError
    return integer_value(call)


def _no_cone(call: Any) -> list[np.ndarray]:
    return [np.full((len(call.index), 0), -1, dtype=np.int64) for _ in call.step.operand_metas]


FAMILY = Family()
FAMILY.add(
    Rule("aten.mode.default", mode, _no_cone, _exact_mode),
    Rule("aten._unique.default", unique, _no_cone, _exact_mode),
    Rule("aten._unique2.default", unique, _no_cone, _exact_mode),
    Rule("aten.nonzero.default", nonzero, _no_cone, integer_value),
    Rule("aten.searchsorted.Tensor", searchsorted, _no_cone, integer_value),
    Rule("aten.searchsorted.Scalar", searchsorted, _no_cone, integer_value),
    Rule("aten.bucketize.Tensor", bucketize, _no_cone, integer_value),
    Rule("aten.bucketize.Scalar", bucketize, _no_cone, integer_value),
)
