"""Maximum pools with their indices, and their gradients.

With candidates k of a window, those with x_k + X_k >= x_w - X_w for the winner w of float64, every legal maximum lies
within max(X_k) of x_w: the largest bound that can win. The index is unsure where another candidate may win; then the
gradient of the window may go to any of the candidates. At an exact tie any of the tied elements may get it (a kink).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.program import Ref
from kernels_core.rules.extremum_weights import REACH
from kernels_core.rules.pooling import Pool, adaptive_pool, nonnegative_map, sliding_pool
from kernels_core.rules.product_bounds import relative_error
from kernels_core.rules.record import Family, Rule


def _sliding(
    data: Any, result: Any, rank: int, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, *_: Any
) -> Pool:
    return sliding_pool(data, result, rank, kernel, stride, padding, dilation)


class _Contest(NamedTuple):
    """Who may be the maximum of each window, (results, taps), and which windows are contested.

    Attributes:
        taps: flat data elements, -1 outside.
        bound: of the elements.
        winner: the choice of float64.
        candidates: elements that may win, the winner among them.
        unsure: (results,) True where roundings may choose another one; exact ties are added in the run at kinks.
        ties: number of exact ties.
    """

    taps: torch.Tensor
    bound: torch.Tensor
    winner: torch.Tensor
    candidates: torch.Tensor
    unsure: torch.Tensor
    ties: int


def _contest(local: Local, pool: Pool, a: Enclosure, top: torch.Tensor, index: torch.Tensor) -> _Contest:
    taps = torch.from_numpy(pool.windows(np.arange(index.numel()))).to(a.mid.device)
    inside = taps >= 0
    mid = torch.where(inside, a.mid.reshape(-1)[taps.clamp(min=0)], -torch.inf)
    bound = mid.new_zeros(mid.shape)
    if a.bound is not None:
        bound = torch.where(inside, a.bound.expand(a.shape).reshape(-1)[taps.clamp(min=0)], 0.0)
    winner = inside & (taps % max(1, int(np.prod(pool.data))) == index.reshape(-1, 1))
    best = top.reshape(-1, 1)
    own = torch.where(winner, bound, 0.0).sum(1, keepdim=True)
    candidates = (inside & ~(mid + bound * REACH < best - own * REACH) & ~best.isnan()) | winner
    others = candidates & ~winner
    unsure = (others & (bound + own > 0)).any(1)
    tied = (others & (bound + own == 0) & best.isfinite()).any(1) & ~unsure
    return _Contest(taps, bound, winner, candidates, unsure | tied if local.kinks else unsure, int(tied.sum()))


def _forward(make: Callable[..., Pool], rank: int) -> dict[str, Any]:
    def pool_of(step: Any) -> Pool:
        return make(step.operand_metas[0].shape, step.shape, rank, *step.args[1:])

    def bound(local: Local, a: Enclosure, *args: Any) -> tuple[Enclosure, Enclosure]:
        mid, index = local.step.op(a.mid, *args)  # type: ignore[misc]
        found = _contest(local, pool_of(local.step), a, mid, index)
        local.arithmetic.ties += found.ties
        reach = None
        if a.bound is not None:
            widest = torch.where(found.candidates, found.bound, 0.0)
            reach = (widest.amax(1) if widest.shape[1] else widest.sum(1)).reshape(mid.shape)
        return Enclosure(mid, reach), Enclosure(index, None, found.unsure.reshape(mid.shape))

    def cone(call: Any) -> list[np.ndarray]:
        if call.output == 1:
            return [np.full((len(call.index), 0), -1, dtype=np.int64)]
        return [pool_of(call.step).windows(call.index)]

    def exact(call: Any, values: Any) -> Any:
        if call.output == 1:
            chosen = call.integers[Ref(call.step.number, 1)].mid.reshape(-1)
            return np.array([int(chosen[int(i)]) for i in call.index], dtype=object)
        result = np.empty(len(values), dtype=object)
        for n, (row, places) in enumerate(zip(values, call.indices[0], strict=True)):
            inside = [v for v, place in zip(row, places, strict=True) if place >= 0]
            best = inside[0]
            for value in inside[1:]:
                best = call.numbers.maximum(best, value)
            result[n] = best
        return result

    return {"bound": bound, "cone": cone, "exact": exact}


def _winners(pool: Pool, index: torch.Tensor) -> torch.Tensor:
    """Return the flat data element of each window's maximum."""
    plane, places = int(np.prod(pool.data)), max(1, int(np.prod(pool.result)))
    return torch.arange(index.numel(), device=index.device) // places * plane + index.reshape(-1)


def _shared(local: Local, grad: Enclosure, value: Enclosure, found: _Contest, several: float) -> Enclosure:
    """Return the gradient where the candidates of unsure windows may get all of it or nothing.

    At kinks the midpoint of both stands for no exact value, so that nothing beyond is contained.
    """
    size = grad.magnitude_upper().expand(grad.shape).reshape(-1, 1)
    shared = found.unsure[:, None] & found.candidates

    def added(part: torch.Tensor) -> torch.Tensor:
        total = part.new_zeros(value.mid.numel() + 1)
        places = torch.where(found.taps < 0, value.mid.numel(), found.taps)
        return total.index_add_(0, places.reshape(-1), part.expand(found.taps.shape).reshape(-1))[:-1].reshape(
            value.shape
        )

    extra = added(torch.where(shared, size, 0.0))
    if not local.kinks:
        return Enclosure(value.mid, (value.bound_or_zero() + extra * (1 + several)).mul_(INFLATE))
    moved = torch.where(found.winner, -0.5, 0.5) * grad.mid.reshape(-1, 1)
    bound = value.bound_or_zero() + extra * (0.5 + several)
    if grad.bound is not None:
        bound = bound + added(torch.where(shared, 0.5 * grad.bound.expand(grad.shape).reshape(-1, 1), 0.0))
    return Enclosure(value.mid + added(torch.where(shared, moved, 0.0)), bound.mul_(INFLATE))


def _backward(make: Callable[..., Pool], rank: int) -> dict[str, Any]:
    def pool_of(step: Any) -> Pool:
        return make(step.operand_metas[1].shape, step.operand_metas[0].shape, rank, *step.args[2:])

    def bound(local: Local, grad: Enclosure, data: Enclosure, *args: Any) -> Enclosure:
        index, pool = args[-1].mid, pool_of(local.step)
        like = grad.mid.new_zeros(()).expand(data.shape)
        settings = [*args[:-1], index]
        several = relative_error(pool.overlap - 1, local.u)  # additions; a single window only moves the value
        value = nonnegative_map(lambda t: local.step.op(t, like, *settings), grad, several, 0.0)  # type: ignore[misc]
        top = data.mid.reshape(-1)[_winners(pool, index)]
        found = _contest(local, pool, data, top, index)
        if not bool(found.unsure.any()):
            return value
        local.lose_rad()
        return _shared(local, grad, value, found, several)

    def cone(call: Any) -> list[np.ndarray]:
        pool = pool_of(call.step)
        results = pool.results(call.index)
        chosen = call.integer(2).reshape(-1)[np.maximum(results, 0)]
        here = call.index[:, None] % int(np.prod(pool.data))
        none = np.full((len(call.index), 0), -1, dtype=np.int64)
        return [np.where((results >= 0) & (chosen == here), results, -1), none, none]

    def exact(call: Any, grads: Any, *_: Any) -> Any:
        zero = call.numbers.real(0)
        kept = np.where(call.indices[0] >= 0, grads, zero)
        return np.add.reduce(kept, axis=1, initial=zero) if kept.shape[1] else np.full(len(kept), zero, dtype=object)

    return {"bound": bound, "cone": cone, "exact": exact}


FAMILY = Family()
FAMILY.add(
    Rule("aten.max_pool2d_with_indices.default", **_forward(_sliding, 2), classed=True),
    Rule("aten.max_pool3d_with_indices.default", **_forward(_sliding, 3), classed=True),
    Rule("aten.adaptive_max_pool2d.default", **_forward(adaptive_pool, 2), classed=True),
    Rule("aten.adaptive_max_pool3d.default", **_forward(adaptive_pool, 3), classed=True),
    Rule("aten.max_pool2d_with_indices_backward.default", **_backward(_sliding, 2), classed=True),
    Rule("aten.max_pool3d_with_indices_backward.default", **_backward(_sliding, 3), classed=True),
    Rule("aten.adaptive_max_pool2d_backward.default", **_backward(adaptive_pool, 2), classed=True),
    Rule("aten.adaptive_max_pool3d_backward.default", **_backward(adaptive_pool, 3), classed=True),
)
