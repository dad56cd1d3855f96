"""Average pools and their gradients: a linear map with non-negative coefficients, applied to magnitudes as well.

    mean over a window of n:      |y' - y| <= L(X) + ((1 + n u)(1 + u)^2 - 1) L(|x| + X) + eta
    gradient, m windows overlap:  |g' - g| <= L(G) + ((1 + m u)(1 + u)^2 - 1) L(|g| + G) + m eta

A mean adds at most n terms and divides; a gradient divides, and adds in the format of the result (PyTorch's 16-bit
kernels do), so that there u is that of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.integers import whole_integers
from kernels_core.rules.product_bounds import relative_error
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.windows import Map, adaptive, inverted, per_dim, sliding, window


class Pool:
    """The windows of one pool: a map per spatial dimension, and the divisor of each window."""

    def __init__(self, data: tuple[int, ...], result: tuple[int, ...], maps: list[Map], divisors: np.ndarray) -> None:
        """Take the shapes of data and result."""
        rank = len(maps)
        self.maps, self.divisors = maps, divisors
        self.data, self.result = data[len(data) - rank :], result[len(result) - rank :]

    def windows(self, index: np.ndarray) -> np.ndarray:
        """Return (n, taps): the data elements of the windows of flat results."""
        return _reach(self.maps, index, self.result, self.data)

    def results(self, index: np.ndarray) -> np.ndarray:
        """Return (n, m): the results whose windows hold the flat data elements."""
        back = [inverted(one, size) for one, size in zip(self.maps, self.data, strict=True)]
        return _reach(back, index, self.data, self.result)

    @property
    def taps(self) -> int:
        """Largest number of elements in a window."""
        return math.prod(one.shape[1] for one in self.maps)

    @property
    def overlap(self) -> int:
        """Largest number of windows that hold one element."""
        return math.prod(inverted(one, size).shape[1] for one, size in zip(self.maps, self.data, strict=True))


def _reach(maps: list[Map], index: np.ndarray, own: tuple[int, ...], other: tuple[int, ...]) -> np.ndarray:
    lead, flat = np.divmod(index, max(1, math.prod(own)))
    taps = window(maps, np.unravel_index(flat, own), other)
    return np.where(taps < 0, -1, lead[:, None] * math.prod(other) + taps)


def sliding_pool(
    data: tuple[int, ...],
    result: tuple[int, ...],
    rank: int,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
) -> Pool:
    """Return the pool of a sliding window; an empty stride is the kernel."""
    sizes, places = data[len(data) - rank :], result[len(result) - rank :]
    kernel = per_dim(kernel, rank)
    stride = kernel if not isinstance(stride, int) and not stride else per_dim(stride, rank)
    settings = list(zip(places, sizes, kernel, stride, per_dim(padding, rank), per_dim(dilation, rank), strict=True))
    return Pool(data, result, [sliding(*one) for one in settings], np.ones(1))


def _average_pool(
    data: tuple[int, ...],
    result: tuple[int, ...],
    rank: int,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Pool:
    pool = sliding_pool(data, result, rank, kernel, stride, padding)
    steps = per_dim(kernel, rank) if not isinstance(stride, int) and not stride else per_dim(stride, rank)
    sides = []
    for one, places, size, k, s, p in zip(
        pool.maps, pool.result, pool.data, per_dim(kernel, rank), steps, per_dim(padding, rank), strict=True
    ):
        start = np.arange(places) * s - p
        sides.append(np.minimum(start + k, size + p) - start if count_include_pad else (one >= 0).sum(1))
    pool.divisors = _outer(sides) if divisor_override is None else np.full(math.prod(pool.result), divisor_override)
    return pool


def _outer(sides: list[np.ndarray]) -> np.ndarray:
    found = np.ones(1, dtype=np.int64)
    for side in sides:
        found = (found[:, None] * side).reshape(-1)
    return found


def adaptive_pool(data: tuple[int, ...], result: tuple[int, ...], rank: int, *_: Any) -> Pool:
    """Return the pool of adaptive windows."""
    maps = [adaptive(m, n) for m, n in zip(result[len(result) - rank :], data[len(data) - rank :], strict=True)]
    return Pool(data, result, maps, _outer([(one >= 0).sum(1) for one in maps]))


Make = Callable[..., Pool]


def nonnegative_map(
    apply: Callable[[torch.Tensor], torch.Tensor], a: Enclosure, slope: float, underflow: float
) -> Enclosure:
    """Return the enclosure of a linear map with coefficients of one sign: see the module."""
    mid = apply(a.mid)
    bound = apply(a.magnitude_upper()).abs_().mul_(slope * INFLATE).add_(underflow)
    if a.bound is not None:
        bound = bound.add_(apply(a.bound.expand(a.shape)).abs_()).mul_(INFLATE)
    bound = bound.mul_(
        INFLATE * (1 + 2.0**-40)
    )  # the sums inside `apply` are evaluated in float64, of less than 2^12 terms
    if all_finite(bound):
        return Enclosure(mid, bound)
    own = a.bound_or_zero().expand(a.shape)
    special, loose = (~a.mid.isfinite()) & (own == 0), ~own.isfinite() | (~a.mid.isfinite() & (own != 0))
    certain = (apply(special.double()) != 0) & (apply(loose.double()) == 0) & ~mid.isfinite()
    bound = torch.where(certain, 0.0, torch.where(mid.isfinite() & ~bound.isnan(), bound, torch.inf))
    return Enclosure(torch.where(certain | mid.isfinite(), mid, torch.nan), bound)


def _forward(make: Make, rank: int) -> dict[str, Any]:
    def pool_of(step: Any) -> Pool:
        return make(step.operand_metas[0].shape, step.shape, rank, *step.args[1:], **step.kwargs)

    def bound(local: Local, a: Enclosure, *args: Any, **kwargs: Any) -> Enclosure:
        if not a.floating:
            return whole_integers(local, a, *args, **kwargs)
        # PyTorch's three-dimensional adaptive kernel adds up in the format of the result, the others in float32.
        slope = relative_error(
            pool_of(local.step).taps, local.u if make is adaptive_pool and rank == 3 else local.u_sum, 2
        )
        return local.stored(nonnegative_map(lambda t: local.step.op(t, *args, **kwargs), a, slope, local.eta_acc))  # type: ignore[misc]

    def cone(call: Any) -> list[np.ndarray]:
        return [pool_of(call.step).windows(call.index)]

    def exact(call: Any, values: Any) -> Any:
        pool = pool_of(call.step)
        return call.numbers.divide(
            _total(call, values, call.indices[0]), _whole(pool.divisors[call.index % len(pool.divisors)])
        )

    return {"bound": bound, "cone": cone, "exact": exact}


def _backward(make: Make, rank: int) -> dict[str, Any]:
    def pool_of(step: Any) -> Pool:
        return make(step.operand_metas[1].shape, step.operand_metas[0].shape, rank, *step.args[2:], **step.kwargs)

    def bound(local: Local, grad: Enclosure, data: Enclosure, *args: Any, **kwargs: Any) -> Enclosure:
        overlap = pool_of(local.step).overlap
        like = grad.mid.new_zeros(()).expand(data.shape)
        return nonnegative_map(lambda t: local.step.op(t, like, *args, **kwargs), grad,  # type: ignore[misc]
                               relative_error(overlap, local.u, 2), overlap * local.eta)  # fmt: skip

    def cone(call: Any) -> list[np.ndarray]:
        return [pool_of(call.step).results(call.index), np.full((len(call.index), 0), -1, dtype=np.int64)]

    def exact(call: Any, grads: Any, _: Any) -> Any:
        divisors = pool_of(call.step).divisors
        inside = call.indices[0] >= 0
        values = np.where(inside, grads, call.numbers.real(0))
        return _total(
            call,
            call.numbers.divide(values, _whole(np.where(inside, divisors[call.indices[0] % len(divisors)], 1))),
            call.indices[0],
        )

    return {"bound": bound, "cone": cone, "exact": exact}


def _whole(values: np.ndarray) -> Any:
    """Return an integer array as Python numbers."""
    found = np.empty(values.shape, dtype=object)
    found.reshape(-1)[:] = [int(v) for v in values.reshape(-1)]
    return found


def _total(call: Any, values: Any, index: np.ndarray) -> Any:
    """Return the exact sum over the elements inside."""
    zero = call.numbers.real(0)
    kept = np.where(index >= 0, values, zero)
    return np.add.reduce(kept, axis=1, initial=zero) if kept.shape[1] else np.full(len(kept), zero, dtype=object)


FAMILY = Family()
FAMILY.add(
    Rule("aten.avg_pool2d.default", **_forward(_average_pool, 2), classed=True),
    Rule("aten.avg_pool3d.default", **_forward(_average_pool, 3), classed=True),
    Rule("aten.avg_pool2d_backward.default", **_backward(_average_pool, 2), classed=True),
    Rule("aten.avg_pool3d_backward.default", **_backward(_average_pool, 3), classed=True),
    Rule("aten._adaptive_avg_pool2d.default", **_forward(adaptive_pool, 2), classed=True),
    Rule("aten._adaptive_avg_pool3d.default", **_forward(adaptive_pool, 3), classed=True),
    Rule("aten._adaptive_avg_pool2d_backward.default", **_backward(adaptive_pool, 2), classed=True),
    Rule("aten._adaptive_avg_pool3d_backward.default", **_backward(adaptive_pool, 3), classed=True),
)
