"""Running sums, log-sums and extrema along a dimension.

The k-th running sum is a sum of k terms in some order (a parallel scan only regroups them): (k - 1) u_acc sum of their
magnitudes, as in sums.py. A running maximum moves by at most the largest bound so far.

A running logsumexp S_k moves by at most log sum_{j<=k} exp(x_j + A_j) - S_k (downwards by no more, it is convex). It is
at most k - 1 steps of log(exp a + exp b). An error of a partial result s enters S_k with the weight exp(s - S_k), and
|s| exp(s - S_k) <= |S_k| + 1, so that each step errs by the granted accuracy of that function on |S_k| + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.extremum_weights import REACH
from kernels_core.rules.movement import before
from kernels_core.rules.operands import integral, is_integral, parts
from kernels_core.rules.record import Family, Rule

State = tuple[torch.Tensor, ...]


def line(meta: Any, dim: int, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (n, g) the flat indices of the lines along `dim` through the elements `index`, and their places there."""
    if not meta.shape:
        return index[:, None], np.zeros(len(index), dtype=np.int64)
    dim %= len(meta.shape)
    size, stride = meta.shape[dim], math.prod(meta.shape[dim + 1 :])
    place = (index // stride) % size
    return (index - place * stride)[:, None] + np.arange(size) * stride, place


def scan(combine: Callable[[Any, Any], Any], state: State, dim: int) -> Any:
    """Return all prefixes of an associative operation along `dim`, by doubling: log2(n) passes."""
    n, step = state[0].shape[dim], 1
    while step < n:
        left = tuple(t.narrow(dim, 0, n - step) for t in state)
        right = tuple(t.narrow(dim, step, n - step) for t in state)
        new = combine(left, right)
        state = tuple(torch.cat((t.narrow(dim, 0, step), v), dim) for t, v in zip(state, new, strict=True))
        step *= 2
    return state


def prefixes(mid: torch.Tensor, dim: int) -> torch.Tensor:
    """Return 1, 2, ..., n along `dim`, in a shape that broadcasts."""
    shape = [1] * mid.dim()
    shape[dim] = mid.shape[dim]
    return torch.arange(1, mid.shape[dim] + 1, dtype=torch.float64, device=mid.device).reshape(shape)


def cumsum(local: Local, a: Enclosure, dim: int, *, dtype: Any = None) -> Enclosure:
    """Running sum."""
    if is_integral(local):
        return _integer_scan(local, a, dim)
    mid, bound = parts(a)
    if not mid.dim() or not mid.numel():
        return Enclosure(mid.clone(), bound)
    count = prefixes(mid, dim)
    size = mid.abs() if bound is None else mid.abs() + bound
    error = size.cumsum(dim).mul_((count - 1 + local.loaded) * local.u_sum)
    if bound is not None:
        error += bound.expand(mid.shape).cumsum(dim)
    error.mul_(INFLATE * (1 + mid.shape[dim] * 2.0**-52)).add_(local.sum_underflow(mid.shape[dim]))
    return local.stored(_settled(Enclosure(mid.cumsum(dim), error), Enclosure(mid, bound), dim))


def _integer_scan(local: Local, a: Enclosure, dim: int) -> Enclosure:
    found = integral(local, Enclosure(a.mid), dim)
    return found if a.unsure is None or not a.mid.dim() else Enclosure(found.mid, None, a.unsure.long().cumsum(dim) > 0)


def _settled(value: Enclosure, a: Enclosure, dim: int) -> Enclosure:
    """Classes: certain where an exact infinity or NaN came before, and every value before is exact or bounded."""
    bound = value.bound_or_zero()
    if all_finite(bound):
        return value
    special = (~a.mid.isfinite()).long().cumsum(dim) > 0
    loose = torch.zeros_like(special)
    if a.bound is not None:
        loose = (~a.bound.isfinite() | (~a.mid.isfinite() & (a.bound != 0))).expand(a.shape).long().cumsum(dim) > 0
    certain = special & ~loose & ~value.mid.isfinite()
    bound = torch.where(certain, 0.0, torch.where(bound.isnan() | ~value.mid.isfinite(), torch.inf, bound))
    return Enclosure(torch.where(certain | value.mid.isfinite(), value.mid, torch.nan), bound)


def logcumsumexp(local: Local, a: Enclosure, dim: int) -> Enclosure:
    """Running logsumexp."""
    mid = torch.logcumsumexp(a.mid, dim)
    if not mid.dim() or not mid.numel():
        return Enclosure(mid, a.bound)
    moved = torch.zeros_like(mid)
    if a.bound is not None:
        moved = torch.logcumsumexp(a.mid + a.bound, dim).sub_(mid).add_(mid.abs(), alpha=2.0**-50)
    steps = (prefixes(mid, dim) - 1) * (1 + 2.0**-20)
    step = (2 * local.ulp("logaddexp") + 2) * local.u_acc
    # a term at a time: PyTorch's derivative stands -max_finite in for log 0, next to which nothing has room
    error = mid.abs().mul_(step).add_((moved + 1).mul_(step)).add_(2 * local.smallest_normal).mul_(steps).add_(moved)
    nothing = mid == -torch.inf
    if a.bound is not None:
        nothing &= a.bound.expand(mid.shape).cummax(dim).values == 0
    error.masked_fill_(nothing, 0.0)
    return local.stored(_settled(Enclosure(mid, error.mul_(INFLATE)), a, dim))


def _extremum_scan(sign: int) -> Any:
    def bound(local: Local, a: Enclosure, dim: int) -> tuple[Enclosure, Enclosure]:
        mid, index = (torch.cummax if sign > 0 else torch.cummin)(a.mid, dim)
        if not a.floating or not mid.dim() or not mid.numel():
            return Enclosure(mid, a.bound, a.unsure), Enclosure(index, None, a.unsure)
        error = None if a.bound is None else a.bound.expand(mid.shape).cummax(dim).values
        return Enclosure(mid, error), Enclosure(index, None, _unsure_indices(local, a, index, dim, sign))

    return bound


def _two_largest(a: State, b: State) -> State:
    """Combine (largest, second largest) of two prefixes."""
    return torch.maximum(a[0], b[0]), torch.maximum(torch.minimum(a[0], b[0]), torch.maximum(a[1], b[1]))


def _unsure_indices(local: Local, a: Enclosure, index: torch.Tensor, dim: int, sign: int) -> torch.Tensor:
    """As `extrema.unsure_index`, for every prefix."""
    exact = torch.zeros_like(a.mid) if a.bound is None else a.bound.expand(a.shape) * REACH
    upper = a.mid * sign + exact
    _, second = scan(_two_largest, (upper, torch.full_like(upper, -torch.inf)), dim)
    own, room = (a.mid * sign).gather(dim, index), exact.gather(dim, index)
    near = (second >= own - room) & (prefixes(a.mid, dim) > 1)
    ties = near & (second == own) & (exact.cummax(dim).values == 0)
    local.arithmetic.ties += int(ties.sum())
    found: torch.Tensor = near if local.kinks else near & ~ties
    return found


# The exact values -----------------------------------------------------------------------------------------------------


def prefix_cone(call: Any) -> list[np.ndarray]:
    """The line of each element up to itself, -1 beyond."""
    lines, place = line(call.step.operand_metas[0], int(call.step.args[1]), call.index)
    return [np.where(np.arange(lines.shape[1]) <= place[:, None], lines, -1)]


def prefix_exact(fold: Callable[[Any, Any], Any]) -> Any:
    """Return the exact part that applies `fold(call, values)` to the values of each prefix."""

    def exact(call: Any, values: Any) -> Any:
        found = np.empty(len(values), dtype=object)
        for k, (row, cone) in enumerate(zip(values, call.indices[0], strict=True)):
            found[k] = fold(call, row[cone >= 0])
        return found

    return exact


def _log_sum(call: Any, values: Any) -> Any:
    powers = call.numbers.ball(lambda v: v.exp(), values)
    return call.numbers.ball(lambda v: v.log(), np.add.reduce(powers))


def _extremum_fold(sign: int) -> Any:
    def fold(call: Any, values: Any) -> Any:
        if call.output == 0:
            choose = call.numbers.maximum if sign > 0 else call.numbers.minimum
            best = values[0]
            for v in values[1:]:
                best = choose(best, v)
            return best
        place = 0  # PyTorch takes the last of equal values
        for k in range(1, len(values)):
            worse = (
                call.numbers.less(values[k], values[place]) if sign > 0 else call.numbers.less(values[place], values[k])
            )
            place = place if worse else k
        return place

    return fold


def _rule(name: str, bound: Any, fold: Any) -> Rule:
    return Rule(f"aten.{name}.default", bound, prefix_cone, prefix_exact(fold), before(1), aligned="left", classed=True)


FAMILY = Family()
FAMILY.add(
    _rule("cumsum", cumsum, lambda call, values: np.add.reduce(values)),
    _rule("logcumsumexp", logcumsumexp, _log_sum),
    _rule("cummax", _extremum_scan(1), _extremum_fold(1)),
    _rule("cummin", _extremum_scan(-1), _extremum_fold(-1)),
)
