"""Infinities and NaN among the values of a reduction or of a row: when is the class of the result certain?

A group (the values that one result depends on) has a certain class where it holds an infinity or NaN that is exact and
every other value is exact or bounded: no rounding then changes what float64 itself returned. Where float64 returned an
infinity or NaN otherwise, nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels_core.enclosure import Enclosure, all_finite


def classed(value: Enclosure, a: Enclosure, dims: Sequence[int], keepdim: bool) -> Enclosure:
    """Return `value` with classes as in the module; `a` is the operand whose groups along `dims` it depends on."""
    if value.bound is None or all_finite(value.bound):
        return value
    special = _any(~a.mid.isfinite(), dims, keepdim)
    loose = torch.zeros_like(special)
    if a.bound is not None:
        unknown = ~a.bound.isfinite() | (~a.mid.isfinite() & (a.bound != 0))
        loose = _any(unknown, dims, keepdim)
    finite = value.mid.isfinite()
    certain = special & ~loose & ~finite
    beyond = ~special & value.mid.isinf()  # finite, but float64 cannot hold it
    bound = torch.where(value.bound.isnan() | (~finite & ~certain), torch.inf, value.bound)
    mid = torch.where(finite | certain | beyond, value.mid, torch.nan)
    return Enclosure(mid, torch.where(certain, 0.0, bound))


def joined(first: Enclosure, second: Enclosure) -> Enclosure:
    """Return what `classed` is to look at where a result depends on groups of two operands of one shape.

    An element is infinite or NaN where either operand is, certain where that operand is exact, and unbounded where
    either is.
    """
    finite = first.mid.isfinite()
    mid = torch.where(finite, second.mid, first.mid)
    if first.bound is None and second.bound is None:
        return Enclosure(mid)
    one, other = first.bound_or_zero(), second.bound_or_zero()
    bound = torch.where(finite, other, one)
    return Enclosure(mid, torch.where(one.isfinite() & other.isfinite(), bound, torch.inf).expand(mid.shape))


def _any(condition: torch.Tensor, dims: Sequence[int], keepdim: bool) -> torch.Tensor:
    found = condition
    for dim in sorted(dims, reverse=True):
        found = found.any(dim, keepdim=keepdim)
    return found
