"""Operations that write to places, by ATen's names: sums with exact leading parts, and plain overwriting.

A sum over what a target collects is one over rows of different length (exact_sums.py): each target has a scale of its
own, two slices are added up exactly, the rest in float64. A target that is overwritten twice is not known.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch

from kernels_core.doubles.arithmetic import add, multiply
from kernels_core.doubles.error_free import two_sum
from kernels_core.doubles.exact_sums import power_above, slice_off
from kernels_core.doubles.number import INFLATE, DoubleDouble, U, exactly, number, select, unknown
from kernels_core.doubles.record import Call, Evaluation, doubtful, fine
from kernels_core.rules import registry
from kernels_core.rules.scatter import Scatter, leaves, places

Tensor = torch.Tensor


def written(scatter: Scatter) -> Evaluation:
    """Return the evaluation of an operation without a reduction, or with a sum."""

    def evaluate(call: Call, *args: Any, **kwargs: Any) -> DoubleDouble:
        shape = call.local.step.shape
        plan = scatter.plan(*places(args, scatter.index), result=shape, **kwargs)
        reduction, _ = scatter.reduce(args, kwargs)
        open_ = any(doubtful(leaf) is not None for k in scatter.index for leaf in leaves(args[k]))
        lost = DoubleDouble(call.value.mid, call.value.mid.new_zeros(()), call.value.mid.new_full((), torch.inf))
        if open_ or reduction not in ("", "sum") or plan.divisors is not None or not call.value.floating:
            return lost
        kept = plan.targets >= 0
        targets = plan.targets[kept].long()
        new = _contributions(args[scatter.source], plan.sources, kept, float(kwargs.get("alpha", 1)))
        old = (
            _flat(args[scatter.base])
            if scatter.base is not None
            else exactly(call.value.mid.new_zeros(call.value.mid.numel()))
        )
        found = add(old, summed(new, targets, len(old.hi))) if reduction else _overwritten(old, new, targets)
        return found.each(lambda part: part.reshape(shape))

    return evaluate


def _flat(value: Any) -> DoubleDouble:
    return fine(value).each(lambda part: part.reshape(-1))


def _contributions(source: Any, sources: Tensor | None, kept: Tensor, alpha: float) -> DoubleDouble:
    if sources is None:
        found = fine(source)
        found = DoubleDouble(*(part.expand(int(kept.sum())) for part in (found.hi, found.lo, found.rad)))
    else:
        found = _flat(source).each(lambda part: part[sources[kept].long()])
    return found if alpha == 1 else multiply(found, number(alpha))


def summed(new: DoubleDouble, targets: Tensor, count: int) -> DoubleDouble:
    """Return, for each target, the sum of what it collects; n is the most that one collects (exact_sums.total)."""

    def collect(part: Tensor) -> Tensor:
        return new.hi.new_zeros(count).index_add_(0, targets, part.expand(targets.shape))

    if not len(targets):
        return exactly(new.hi.new_zeros(count))
    n = int(torch.bincount(targets, minlength=count).max())
    bits = 51 - max(1, math.ceil(math.log2(n)))
    top = new.hi.new_zeros(count).scatter_reduce_(0, targets, new.hi.abs(), "amax")
    scale = power_above(top)[targets]
    first, rest = slice_off(new.hi, scale, bits)
    second, rest = slice_off(rest, scale * 2.0 ** -(bits + 1), bits)
    rest = rest + new.lo
    high, error = two_sum(collect(first), collect(second))
    low = error + collect(rest)
    rad = collect(rest.abs_()).mul_(n * U).add_(collect(new.rad)).mul_(1 + 2 * n * U)
    return DoubleDouble(*two_sum(high, low), rad.add_(low.abs(), alpha=U).mul_(INFLATE))


def _overwritten(old: DoubleDouble, new: DoubleDouble, targets: Tensor) -> DoubleDouble:
    count = torch.bincount(targets, minlength=len(old.hi))
    put = DoubleDouble(*(torch.zeros_like(old.hi).index_put_((targets,), part.expand(targets.shape).contiguous())
                         for part in (new.hi, new.lo, new.rad)))  # fmt: skip
    return unknown(select(count > 0, put, old), count > 1)


_NAMES = (
    "scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add.default",
    "scatter_reduce.two", "index_add.default", "index_copy.default", "index_put.default", "_unsafe_index_put.default",
    "put.default", "embedding_dense_backward.default", "col2im.default", "unfold_backward.default",
    "reflection_pad1d_backward.default", "reflection_pad2d_backward.default", "reflection_pad3d_backward.default",
    "replication_pad1d_backward.default", "replication_pad2d_backward.default", "replication_pad3d_backward.default",
)  # fmt: skip

EVALUATIONS: dict[str, Evaluation] = {
    f"aten.{name}": written(cast(Any, registry()[f"aten.{name}"].bound).__self__) for name in _NAMES
}
