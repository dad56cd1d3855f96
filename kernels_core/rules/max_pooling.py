"""Maximum pools with their indices, and their gradients.

With candidates k of a window, those with x_k + X_k >= x_w - X_w for the winner w of float64, every legal maximum lies
within max(X_k) of x_w: the largest bound that can win. The index is unsure where another candidate may win; then the
gradient of the window may go to any of its elements. At an exact tie any of the tied elements may get it (a kink).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from kernels_core.arithmetic import INFLATE, Local
from kernels_core.enclosure import Enclosure
from kernels_core.program import Ref
from kernels_core.rules.linear import relative_error
from kernels_core.rules.pooling import Pool, adaptive_pool, nonnegative_map, sliding_pool
from kernels_core.rules.record import Family, Rule


def _sliding(data: Any, result: Any, rank: int, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, *_: Any) -> Pool:
    return sliding_pool(data, result, rank, kernel, stride, padding, dilation)


class _Windows(NamedTuple):
    """The elements of every window: (results, taps), -inf with bound 0 outside."""

    taps: torch.Tensor
    mid: torch.Tensor
    bound: torch.Tensor


def _gathered(pool: Pool, a: Enclosure, results: int) -> _Windows:
    taps = torch.from_numpy(pool.windows(np.arange(results))).to(a.mid.device)
    mid = torch.where(taps < 0, -torch.inf, a.mid.reshape(-1)[taps.clamp(min=0)])
    if a.bound is None:
        return _Windows(taps, mid, mid.new_zeros(()))
    return _Windows(taps, mid, torch.where(taps < 0, 0.0, a.bound.expand(a.shape).reshape(-1)[taps.clamp(min=0)]))


def _forward(make: Callable[..., Pool], rank: int) -> dict[str, Any]:
    def pool_of(step: Any) -> Pool:
        return make(step.operand_metas[0].shape, step.shape, rank, *step.args[1:])

    def bound(local: Local, a: Enclosure, *args: Any) -> tuple[Enclosure, Enclosure]:
        mid, index = local.step.op(a.mid, *args)  # type: ignore[misc]
        pool = pool_of(local.step)
        found = _gathered(pool, a, mid.numel())
        plane = int(np.prod(pool.data))
        winner = found.taps % max(1, plane) == index.reshape(-1, 1)
        own = torch.where(winner, found.bound, 0.0).amax(1, keepdim=True) if found.taps.shape[1] else mid.new_zeros(mid.numel(), 1)
        top = mid.reshape(-1, 1)
        candidate = (found.mid + found.bound * INFLATE >= top - own * INFLATE) & (found.taps >= 0)
        reach = torch.where(candidate | winner, found.bound, 0.0).amax(1) if found.taps.shape[1] else own[:, 0]
        others = candidate & ~winner
        unsure = (others & (found.bound + own > 0)).any(1)
        tied = (others & (found.mid == top) & (found.bound + own == 0) & top.isfinite()).any(1)
        if local.kinks:
            unsure |= tied
        else:
            local.arithmetic.ties += int(tied.sum())
        value = Enclosure(mid, None if a.bound is None else reach.reshape(mid.shape))
        return value, Enclosure(index, None, unsure.reshape(mid.shape))

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


def _backward(make: Callable[..., Pool], rank: int) -> dict[str, Any]:
    def pool_of(step: Any) -> Pool:
        return make(step.operand_metas[1].shape, step.operand_metas[0].shape, rank, *step.args[2:])

    def bound(local: Local, grad: Enclosure, data: Enclosure, *args: Any) -> Enclosure:
        index = args[-1]
        pool = pool_of(local.step)
        like = grad.mid.new_zeros(()).expand(data.shape)
        settings = [a.mid if isinstance(a, Enclosure) else a for a in args]
        several = pool.overlap - 1  # additions; a single window only moves the value
        value = nonnegative_map(lambda t: local.step.op(t, like, *settings), grad,  # type: ignore[misc]
                                relative_error(several, local.u, 0), 0.0)  # fmt: skip
        if index.unsure is None or not bool(index.unsure.any()):
            return value
        loose = torch.where(index.unsure, grad.magnitude_upper().expand(grad.shape), 0.0).reshape(-1, 1)
        taps = torch.from_numpy(pool.windows(np.arange(grad.mid.numel()))).to(grad.mid.device)
        extra = value.mid.new_zeros(value.mid.numel() + 1)
        extra.index_add_(0, torch.where(taps < 0, value.mid.numel(), taps).reshape(-1), loose.expand(taps.shape).reshape(-1))
        extra = extra[:-1].reshape(value.shape).mul_((1 + relative_error(several, local.u)) * INFLATE)
        return Enclosure(value.mid, value.bound_or_zero() + extra)

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
