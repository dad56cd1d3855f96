"""Casts: a narrower format grants one rounding, a wider one none; the real-number meaning is the identity.

Formats that saturate clamp, which is part of their exact value (saturation.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import DISCRETE, INFLATE, Local
from kernels_core.formats import Format, format_of, round_without_limit
from kernels_core.rules.comparisons import may_flip
from kernels_core.rules.cones import broadcast_cone, elementwise_tiles
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family, Rule


def cast(local: Local, a: Enclosure, *_: Any, **__: Any) -> Enclosure:
    """Return `a` in the step's dtype."""
    source = local.step.operand_metas[0].dtype
    if not local.nominal.is_floating_point:
        return _to_integer(a, local.nominal)
    mid, bound = parts(a)
    if not source.is_floating_point:
        held = not mid.numel() or float(mid.abs().amax()) * (local.u - local.own) <= 1  # integers up to 2^p are exact
        return Enclosure(mid, bound) if held else local.rounded(mid, bound, subnormal=False)
    if local.arithmetic.float64 or not _narrows(source, local.nominal):
        return Enclosure(mid, bound)
    if source is torch.float64 and local.compute is not local.dtype:
        bound = _through_the_compute_format(local, mid, bound)
    rounded = _rounded_bound(mid, bound, format_of(local.dtype))
    return Enclosure(mid, _flushed(local, mid, rounded) if local.flushes else rounded)


def _flushed(local: Local, mid: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Return the bound where results below the smallest normal number, `eta` then, may be zero as well."""
    size = mid.abs()
    return torch.where((size != 0) & (size - bound < local.eta), bound + local.eta, bound)


def _through_the_compute_format(local: Local, mid: torch.Tensor, bound: torch.Tensor | None) -> torch.Tensor:
    """PyTorch casts float64 to a 16-bit or 8-bit format by way of float32, so that this rounding is granted too."""
    reach = mid.abs() if bound is None else mid.abs() + bound
    grown = reach.mul_(local.u_acc * INFLATE).add_(local.eta_acc)
    return torch.where(mid == 0, 0.0, grown) if bound is None else grown.add_(bound).mul_(INFLATE)


def _rounded_bound(mid: torch.Tensor, bound: torch.Tensor | None, fmt: Format) -> torch.Tensor:
    """Return the bound after one rounding to F.

    Every y with |y - x| <= B rounds into [RN(x - B), RN(x + B)], as rounding is monotone. With m = |mid| (RN is odd)
    and |mid - x| <= 2^-26 B, for b = (1 + 2^-24) B

        |RN(y) - mid| <= max(RN(m + b) - m, m - RN(m - b)),

    where F has no largest exponent; and a kernel may leave the cast out, |y - mid| <= b. Where nothing is propagated
    only RN(x) remains, and at a tie its mirror image. The factor keeps RN(x) itself clear of the edge: it is decided in
    float64, at the price of a second value where x is within 2^-20 of half an ulp from a tie.
    """
    size = mid.abs()
    if bound is None:
        error = round_without_limit(size, fmt).sub_(size).abs_()
    else:
        reach = bound * DISCRETE
        below = size - round_without_limit(size - reach, fmt)
        error = round_without_limit(size + reach, fmt).sub_(size)
        error = torch.maximum(torch.maximum(error, below), reach)
    if not all_finite(error):  # beyond 2^970, where the sum of `round_without_limit` is infinite
        relative = (size if bound is None else size + bound) * fmt.unit_roundoff
        error = torch.where(error.isfinite(), error, relative + (0.0 if bound is None else bound))
    return error.mul_(1 + 2.0**-20)


def _narrows(source: torch.dtype, target: torch.dtype) -> bool:
    a, b = format_of(source), format_of(target)
    return b.precision < a.precision or b.emin > a.emin or b.max_finite < a.max_finite


def _to_integer(a: Enclosure, dtype: torch.dtype) -> Enclosure:
    """Truncate toward zero (or test against zero, for booleans); unsure where the enclosure reaches another integer.

    What becomes of a NaN or of a number that the integers of `dtype` do not reach is undefined: unsure.
    """
    if not a.floating:
        return Enclosure(a.mid.to(dtype), None, a.unsure)
    mid = a.mid.to(dtype)
    if dtype is torch.bool:
        return Enclosure(mid, None, None if a.bound is None else may_flip(a))
    beyond = ~((a.mid > torch.iinfo(dtype).min - 1.0) & (a.mid < torch.iinfo(dtype).max + 1.0))
    if a.bound is None:
        return Enclosure(mid, None, beyond)
    low, high = (a.mid - a.bound * DISCRETE).to(dtype), (a.mid + a.bound * DISCRETE).to(dtype)
    return Enclosure(mid, None, beyond | ((a.bound > 0) & ((low != mid) | (high != mid))))


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
