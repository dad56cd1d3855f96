"""Casts: a narrower format grants one rounding, a wider one none; the real-number meaning is the identity."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels_core.arithmetic import DISCRETE, INFLATE, Local
from kernels_core.enclosure import Enclosure
from kernels_core.rules.arithmetic import exact_zeros, parts
from kernels_core.rules.cones import broadcast_cone, elementwise_tiles
from kernels_core.rules.record import Family, Rule


def cast(local: Local, a: Enclosure, *_: Any, **__: Any) -> Enclosure:
    """Return `a` in the step's dtype."""
    source = local.step.operand_metas[0].dtype
    if not local.nominal.is_floating_point:
        return _to_integer(a, local.nominal)
    mid, bound = parts(a)
    if not source.is_floating_point:
        held = not mid.numel() or float(mid.abs().max()) * local.u <= 1  # integers up to 2^p are exact
        return Enclosure(mid, bound) if held else local.rounded(mid, bound, subnormal=False)
    if local.arithmetic.float64 or not _narrows(source, local.nominal):
        return Enclosure(mid, bound)
    kept = mid.abs() if bound is None else mid.abs() + bound
    rounding = kept.mul_(local.u * INFLATE).add_(local.eta)
    value = Enclosure(mid, rounding if bound is None else rounding.add_(bound).mul_(INFLATE))
    return exact_zeros(local, value, (mid, bound))


def _narrows(source: torch.dtype, target: torch.dtype) -> bool:
    a, b = torch.finfo(source), torch.finfo(target)
    return b.eps > a.eps or b.smallest_normal > a.smallest_normal or b.max < a.max


def _to_integer(a: Enclosure, dtype: torch.dtype) -> Enclosure:
    """Truncate toward zero (or test against zero, for booleans); unsure where the enclosure reaches another integer."""
    if not a.floating:
        return Enclosure(a.mid.to(dtype), None, a.unsure)
    mid = a.mid.to(dtype)
    if a.bound is None:
        return Enclosure(mid)
    low, high = (a.mid - a.bound * DISCRETE).to(dtype), (a.mid + a.bound * DISCRETE).to(dtype)
    if dtype is torch.bool:
        return Enclosure(mid, None, (a.bound > 0) & (a.mid.abs() <= a.bound * DISCRETE))
    return Enclosure(mid, None, (a.bound > 0) & ((low != mid) | (high != mid)))


def _cast_exact(call: Any, values: Any, *_: Any) -> Any:
    target, source = call.meta.dtype, call.step.operand_metas[0].dtype
    n = call.numbers
    if target is torch.bool and source is not torch.bool:
        return n.each(lambda v: not n.equal(n.real(v), n.real(0)), values)
    if not target.is_floating_point and source.is_floating_point:
        return n.each(n.trunc, values)
    if target.is_floating_point and not source.is_floating_point:
        return n.each(lambda v: n.real(int(v)), values)
    return np.asarray(values, dtype=object)


def _rule(name: str) -> Rule:
    return Rule(name, cast, broadcast_cone, _cast_exact, elementwise_tiles, keeps_inf=True)


FAMILY = Family()
FAMILY.add(_rule("aten._to_copy.default"), _rule("prims.convert_element_type.default"))
