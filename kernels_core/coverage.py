"""The decision: for every element, does the kernel's value lie in the admissible set for certain, or outside it?

The bound of an output includes the rounding to the output's format F that its last operation grants, so the admissible
set is every finite value of F within `bound` of the exact value, and an infinity (NaN in the fnuz formats) where
exact +- bound reaches the value that would follow the largest finite one: what is rounded beyond the format is rounded
there or further. With |mid + low - exact| <= rad:

    covered     |actual - mid - low| + rad <= bound
    violated    |actual - mid - low| - rad >  bound, or NaN or an infinity that is not admissible
    undecided   otherwise: the exact tier decides, within its budget
    unconstrained   the bound is infinite, or admits every finite value of F

-0.0 and 0.0 are the same value; NaN matches only where the exact answer is NaN.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator, Mapping
from typing import Any

import flint
import numpy as np
import torch

from kernels_core.doubles.error_free import two_sum
from kernels_core.enclosure import Enclosure
from kernels_core.errors import UsageError
from kernels_core.exact import tier as exact_tier
from kernels_core.filter.threads import share
from kernels_core.formats import Format, format_of, ulp
from kernels_core.program import Program, Ref

CHUNK = 1 << 17  # elements decided at a time: temporaries stay in the cache, verdicts do not depend on it
# Where no error is above this part of its bound, all are covered whatever rad, a fraction of 2^-26 (filter/run.py), and
# the float64 roundings of the comparison are.
_CLEAR = 1 - 2.0**-10
_SLACK = 1 + 2.0**-50  # the float64 rounding of |actual - mid - low|


class Element(enum.IntEnum):
    """The decision for one element."""

    COVERED = 0
    VIOLATED = 1
    UNDECIDED = 2
    UNCONSTRAINED = 3


@dataclasses.dataclass(frozen=True)
class Source:
    """Where an output comes from, for the exact tier: the program, the output's name, and its inputs' values."""

    program: Program
    name: str
    inputs: Mapping[str, np.ndarray]
    integers: Mapping[Ref, Enclosure]


@dataclasses.dataclass
class Figures:
    """What a decision saw on its way.

    Attributes:
        error_ulp: largest |actual - mid| in ulp of the format at mid.
        used: largest |actual - mid| / bound; inf where a value differs and its bound is 0.
    """

    error_ulp: float = 0.0
    used: float = 0.0

    def see(self, error: torch.Tensor, mid: torch.Tensor, bound: torch.Tensor, fmt: Format) -> None:
        """Take in |actual - mid| of some elements."""
        self.used = _largest_ratio(self.used, error, bound)
        self.error_ulp = _largest_ratio(self.error_ulp, error, ulp(mid, fmt))


def _largest_ratio(so_far: float, top: torch.Tensor, bottom: torch.Tensor) -> float:
    """Return the larger of `so_far` and max(top / bottom), 0 / 0 and NaN counting as 0; divides where it may grow."""
    if float(torch.sub(top, bottom, alpha=so_far).amax()) <= 0:
        return so_far
    return max(so_far, float((top / bottom).nan_to_num_(nan=0.0, posinf=torch.inf).amax()))


def decide(
    actual: torch.Tensor,
    enclosure: Enclosure,
    rad: torch.Tensor | float,
    source: Source | None,
    budget: exact_tier.Budget,
    figures: Figures | None = None,
) -> torch.Tensor:
    """Return an int8 tensor of `Element` codes, of the shape of `actual`.

    Args:
        actual: the kernel's result, in its own dtype.
        enclosure: mid and bound, of the same shape.
        rad: bound on |mid + low - exact|, as a tensor or as a fraction of the bound.
        source: for the exact tier; None leaves undecided elements undecided.
        budget: of the exact tier.
        figures: takes in the errors, where given.
    """
    if not enclosure.floating:
        return _decide_integers(actual, enclosure)
    verdict = torch.from_numpy(np.zeros(actual.numel(), dtype=np.int8))  # zero memory of the system's, not touched yet
    value, mid = actual.reshape(-1), enclosure.mid.reshape(-1)
    bound = None if enclosure.bound is None else enclosure.bound.expand(enclosure.shape).reshape(-1)
    own = rad.expand(enclosure.shape).reshape(-1) if isinstance(rad, torch.Tensor) else rad
    low = None if enclosure.low is None else enclosure.low.expand(enclosure.shape).reshape(-1)

    def work(starts: Iterator[int]) -> tuple[Figures, bool]:
        seen, covered = Figures(), True
        for start in starts:
            part = slice(start, start + CHUNK)
            allowed = None if bound is None else bound[part]
            rads = own[part] if isinstance(own, torch.Tensor) else own
            rest = None if low is None else low[part]
            found = _decide_part(value[part], mid[part], rest, allowed, rads, None if figures is None else seen)
            if found is not None:
                verdict[part], covered = found, False
        return seen, covered

    parts = share(work, list(range(0, len(verdict), CHUNK)), mid.device)
    if figures is not None:
        figures.error_ulp = max(figures.error_ulp, *(seen.error_ulp for seen, _ in parts))
        figures.used = max(figures.used, *(seen.used for seen, _ in parts))
    if source is None or all(covered for _, covered in parts):
        return verdict.reshape(actual.shape)
    waiting = torch.nonzero(verdict == Element.UNDECIDED).reshape(-1).numpy()
    if len(waiting):
        granted = bound if bound is None or isinstance(rad, torch.Tensor) else bound * (1 + rad)  # filter/run.py
        _decide_exactly(verdict, waiting, value, granted, source, budget)
    return verdict.reshape(actual.shape)


def _decide_integers(actual: torch.Tensor, enclosure: Enclosure) -> torch.Tensor:
    same = actual.cpu() == enclosure.mid.cpu()
    verdict = torch.where(same, int(Element.COVERED), int(Element.VIOLATED)).to(torch.int8)
    if enclosure.unsure is not None:
        verdict[enclosure.unsure.cpu().expand(verdict.shape)] = int(Element.UNCONSTRAINED)
    return verdict


def _decide_part(
    actual: torch.Tensor,
    mid: torch.Tensor,
    low: torch.Tensor | None,
    bound: torch.Tensor | None,
    rad: Any,
    figures: Figures | None,
) -> torch.Tensor | None:
    """Return the codes, or None where every element is covered."""
    error = _error(actual.detach(), mid, low)
    allowed = torch.zeros_like(mid) if bound is None else bound
    if figures is not None:
        finite = math.isfinite(float(error.amax()))
        same = error if finite else torch.where(actual.to(torch.float64) == mid, 0.0, error)
        figures.see(same, mid, allowed, format_of(actual.dtype))
        if finite and figures.used <= _CLEAR and not isinstance(rad, torch.Tensor) and _constrains(allowed, actual):
            return None
    # how far the error is above what is allowed for certain; _SLACK also covers the rounding of the difference's terms
    excess = (
        torch.sub(error, allowed, alpha=(1 - rad) / _SLACK)
        if not isinstance(rad, torch.Tensor)
        else error - (allowed - rad * _SLACK) / _SLACK
    )
    if float(excess.amax()) <= 0 and _constrains(allowed, actual):
        return None
    value = actual.detach().to(torch.float64)
    return _decide_slowly(value, mid, low, allowed, rad, actual.dtype, error, excess <= 0).cpu()


def _constrains(bound: torch.Tensor, actual: torch.Tensor) -> bool:
    """Return True where no bound is NaN, or so wide that it admits every finite value of the format."""
    return float(bound.amax()) < torch.finfo(actual.dtype).max


def _error(actual: torch.Tensor, mid: torch.Tensor, low: torch.Tensor | None) -> torch.Tensor:
    """Return |actual - mid - low| to 2^-51 of itself: actual - mid = s + e exactly, and |low| <= ulp(mid) / 2.

    Where s is not zero it is at least twice |low|; where it is zero so is e.
    """
    if low is None:
        return actual.to(torch.float64, copy=True).sub_(mid).abs_()
    difference, rest = two_sum(actual.to(torch.float64), -mid)
    return difference.add_(rest.sub_(low)).abs_()


def _decide_slowly(
    value: torch.Tensor,
    mid: torch.Tensor,
    low: torch.Tensor | None,
    bound: torch.Tensor,
    rad: Any,
    dtype: torch.dtype,
    error: torch.Tensor,
    covered: torch.Tensor,
) -> torch.Tensor:
    exactly_compared = rad if isinstance(rad, torch.Tensor) else bound * rad
    # where nothing was rounded mid is exact
    own = exactly_compared + torch.where(bound == 0, 0.0, 2.0**-50 * (mid.abs() + bound))
    exactly_compared = own if low is None else exactly_compared
    verdict = torch.full(value.shape, int(Element.UNDECIDED), dtype=torch.int8, device=value.device)
    verdict[error > (bound + exactly_compared) * _SLACK] = int(Element.VIOLATED)
    verdict[covered] = int(Element.COVERED)
    fmt = format_of(dtype)
    verdict[value.isnan() & mid.isfinite() & bound.isfinite()] = int(Element.VIOLATED)
    _class_overflow(verdict, value, mid, bound, own, fmt)
    largest = torch.finfo(dtype).max
    loose = bound.isinf() | ((mid - bound <= -largest) & (mid + bound >= largest))
    verdict[loose] = int(Element.UNCONSTRAINED)
    certain = (bound == 0) & ~mid.isfinite()
    beyond = mid.isinf() & bound.isinf() & (dtype is not torch.float64)  # finite, but no narrower format holds it
    same = (value == mid) | (value.isnan() & (mid.isnan() | (beyond & math.isnan(fmt.overflow))))
    verdict[(certain | beyond) & same] = int(Element.COVERED)
    verdict[(certain | beyond) & ~same] = int(Element.VIOLATED)
    return verdict


def _class_overflow(
    verdict: torch.Tensor,
    value: torch.Tensor,
    mid: torch.Tensor,
    bound: torch.Tensor,
    own: torch.Tensor,
    fmt: Format,
) -> None:
    """Decide what stands for overflow: an infinity in its direction, NaN in either direction in the fnuz formats."""
    nan = math.isnan(fmt.overflow)
    beyond = (value.isnan() if nan else value.isinf()) & mid.isfinite()
    reach = (mid.abs() if nan else torch.where(value > 0, mid, -mid)) + bound
    verdict[beyond] = int(Element.UNDECIDED)
    verdict[beyond & (reach - own >= fmt.first_beyond)] = int(Element.COVERED)
    verdict[beyond & (reach + own < fmt.first_beyond)] = int(Element.VIOLATED)


def _decide_exactly(
    verdict: torch.Tensor,
    waiting: np.ndarray,
    value: torch.Tensor,
    bound: torch.Tensor | None,
    source: Source,
    budget: exact_tier.Budget,
) -> None:
    fmt = format_of(value.dtype)

    def settle(values: Any, index: np.ndarray) -> np.ndarray:
        found = [
            _compare(v, float(value[i]), 0.0 if bound is None else float(bound[i]), fmt)
            for v, i in zip(values, index, strict=True)
        ]
        for i, element in zip(index, found, strict=True):
            if element is not None:
                verdict[int(i)] = int(element)
        return np.array([element is not None for element in found])

    exact_tier.resolve(source.program, source.name, waiting, source.inputs, source.integers, settle, budget)


def _compare(exact: Any, actual: float, bound: float, fmt: Format) -> Element | None:
    """Decide |actual - exact| <= bound in exact arithmetic; None where the ball is too wide."""
    ball = isinstance(exact, flint.arb)
    if isinstance(exact, (int, bool)):
        exact = flint.fmpq(int(exact))
    convert = flint.arb if ball else lambda x: flint.fmpq(*x.as_integer_ratio())
    if not math.isfinite(actual):
        return _compare_overflow(exact, actual, bound, fmt, convert)
    gap = abs(convert(actual) - exact)
    if gap <= convert(bound):
        return Element.COVERED
    return Element.VIOLATED if gap > convert(bound) else None


def _compare_overflow(exact: Any, actual: float, bound: float, fmt: Format, convert: Any) -> Element | None:
    stands_for_overflow = fmt.overflow == abs(actual) or (math.isnan(fmt.overflow) and math.isnan(actual))
    if not stands_for_overflow or fmt.first_beyond == math.inf:
        return None
    reach = (-exact if actual < 0 else abs(exact) if math.isnan(actual) else exact) + convert(bound)
    if reach >= convert(fmt.first_beyond):
        return Element.COVERED
    return Element.VIOLATED if reach < convert(fmt.first_beyond) else None


def require_same_form(actual: Any, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
    """Return `actual` where it is a tensor of this shape and dtype.

    Raises:
        UsageError: it is not; the message says what was given.
    """
    if not isinstance(actual, torch.Tensor):
        raise UsageError(f"{name}: expected a tensor, got {type(actual).__name__}\npass the kernel's own result")
    if tuple(actual.shape) != tuple(shape):
        raise UsageError(
            f"{name}: expected shape {list(shape)}, got {list(actual.shape)}\npass the kernel's own result"
        )
    if actual.dtype != dtype:
        raise UsageError(
            f"{name}: expected dtype {str(dtype)[6:]}, got {str(actual.dtype)[6:]}\n"
            "pass the result as the kernel returned it, without a cast"
        )
    return actual
