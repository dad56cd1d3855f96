"""Writing to places: each contribution has one target, and a target collects none, one or several.

What a target makes of its contributions is in scatter_bounds.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, nothing_known
from kernels_core.exact.numbers import NotSeparatedError
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.program import replace_refs
from kernels_core.rules.cones import operand_arguments
from kernels_core.rules.record import Rule
from kernels_core.rules.scatter_bounds import Reduction, contributions, flat_pair

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Plan:
    """Where contributions go.

    Attributes:
        targets: flat index into the result for each contribution, -1 for none.
        sources: flat index into the source operand for each contribution; None for a constant.
        divisors: what each contribution is divided by, None for 1.
        lines: for each element of the result, the group of targets that an unsure index of a contribution can reach,
            and for each contribution its group; None where an unsure index can reach everything.
    """

    targets: Tensor
    sources: Tensor | None
    divisors: Tensor | None = None
    lines: tuple[Tensor, Tensor] | None = None


def ids(value: Any) -> Tensor:
    """Return the flat indices of a tensor, in its shape."""
    return torch.arange(value.numel(), device=value.device).reshape(value.shape)


@dataclasses.dataclass(frozen=True)
class Scatter:
    """An operation that writes to places.

    Attributes:
        plan: from the arguments (integers as tensors, floating operands as tensors of their flat indices) and the
            shape of the result, where contributions go.
        base: position of the tensor that is written to; None for zeros.
        source: position of the contributions.
        index: positions of the integer operands.
        reduce: from (args, kwargs): "sum", "prod", "amax", "amin", "mean", or "" for no reduction; and whether the old
            value takes part.
    """

    plan: Callable[..., Plan]
    base: int | None
    source: int
    index: tuple[int, ...]
    reduce: Callable[[Any, Any], tuple[str, bool]]

    def rule(self, name: str) -> Rule:
        """Return the rule."""
        return Rule(f"aten.{name}", self.bound, self.cone, self.exact, classed=True)

    def bound(self, local: Local, *args: Any, **kwargs: Any) -> Enclosure:
        """Return the enclosure of the result."""
        placed = places(args, self.index)
        shape = local.step.shape
        plan = self.plan(*placed, result=shape, **kwargs)
        base = args[self.base] if self.base is not None else None
        source = args[self.source]
        reduction, include = self.reduce(args, kwargs)
        kept = plan.targets >= 0
        targets = plan.targets[kept].long()
        work = Reduction(
            local,
            shape,
            targets,
            contributions(local, source, plan.sources, plan.divisors, kept),
            flat_pair(base),
            include,
            float(kwargs.get("alpha", 1)),
        )
        value = getattr(work, reduction or "overwrite")()
        value = self._unsure(local, args, plan, work, value)
        return Enclosure(
            value.mid.reshape(shape),
            None if value.bound is None else value.bound.reshape(shape),
            None if value.unsure is None else value.unsure.reshape(shape),
        )

    def _unsure(self, local: Local, args: Any, plan: Plan, work: Reduction, value: Enclosure) -> Enclosure:
        unsure = [v.unsure for k in self.index for v in leaves(args[k]) if v.unsure is not None]
        if not any(bool(u.any()) for u in unsure):
            return value
        sums = self.reduce(args, {})[0] in ("", "sum")
        if not value.floating or not sums or plan.lines is None or plan.sources is None:
            return nothing_known(value.mid)
        # an unsure contribution reaches at most one target of its line, or is missing there: |value' - value| grows by
        # at most the magnitudes of the unsure contributions; without a reduction old and new value may change places
        moving = unsure[0].expand(args[self.index[0]].shape).reshape(-1)[plan.targets >= 0]
        size, contribution = work.source
        magnitude = torch.where(moving, size.abs() + contribution, 0.0)
        groups, mine = plan.lines
        reach = torch.zeros(int(groups.max()) + 1 if groups.numel() else 0, dtype=torch.float64, device=size.device)
        reach.index_add_(0, mine[plan.targets >= 0], magnitude)
        extra = reach[groups.reshape(-1)]
        if not self.reduce(args, {})[0]:
            old = work.base[0].abs() + work.base[1] if work.base is not None else 0.0
            extra = torch.where(extra > 0, extra + value.mid.abs() + value.bound_or_zero() + old, extra)
        bound = (value.bound_or_zero() + extra) * INFLATE * (1 + 2.0**-52 * len(magnitude))
        if self.reduce(args, {})[0] == "sum":
            bound = bound * (1 + len(magnitude) * local.u)
        return Enclosure(value.mid, bound)

    def _placed(self, call: Any) -> tuple[Plan, Any, Any]:
        owners = operand_arguments(call.step)
        found = {}
        for position, (owner, meta) in enumerate(zip(owners, call.step.operand_metas, strict=True)):
            if owner in self.index:
                value = torch.from_numpy(np.ascontiguousarray(call.integer(position))).reshape(meta.shape)
            else:
                value = torch.arange(meta.numel).reshape(meta.shape)
            found[position] = value
        order = iter(range(len(owners)))
        args, kwargs = replace_refs((call.step.args, dict(call.step.kwargs)), lambda _: found[next(order)])
        return self.plan(*args, result=call.step.shape, **kwargs), args, kwargs

    def _collected(self, call: Any, plan: Plan) -> np.ndarray:
        """Return (n, g): the contributions of each requested target, -1 where there are fewer."""
        targets = plan.targets.cpu().numpy()
        order = np.argsort(targets, kind="stable")
        start = np.searchsorted(targets[order], call.index, "left")
        stop = np.searchsorted(targets[order], call.index, "right")
        width = int((stop - start).max()) if len(start) else 0
        place = start[:, None] + np.arange(width)[None, :]
        return np.where(
            place < stop[:, None], order[np.minimum(place, max(0, len(order) - 1))] if len(order) else -1, -1
        )

    def cone(self, call: Any) -> list[np.ndarray]:
        """Return the old value and the contributions of each target."""
        plan, _, _ = self._placed(call)
        found = self._collected(call, plan)
        cones = []
        for owner in operand_arguments(call.step):
            if owner == self.base:
                cones.append(call.index)
            elif owner == self.source and plan.sources is not None:
                sources = plan.sources.cpu().numpy()
                cones.append(np.where(found >= 0, sources[found] if len(sources) else -1, -1))
            else:
                cones.append(np.full((len(call.index), 0), -1, dtype=np.int64))
        return cones

    def exact(self, call: Any, *operands: Any) -> Any:
        """Return the reduced value of each target."""
        plan, args, kwargs = self._placed(call)
        found = self._collected(call, plan)
        owners, n = operand_arguments(call.step), call.numbers
        real = n.real if call.meta.dtype.is_floating_point else lambda v: v
        zero = real(0)
        base = (
            operands[owners.index(self.base)]
            if self.base is not None and self.base in owners
            else [zero] * len(call.index)
        )
        source = operands[owners.index(self.source)] if plan.sources is not None else None
        constant = None if source is not None else real(n.of(args[self.source]))
        alpha = n.of(float(kwargs.get("alpha", 1))) if call.meta.dtype.is_floating_point else kwargs.get("alpha", 1)
        reduction, include = self.reduce(args, kwargs)
        values = np.empty(len(call.index), dtype=object)
        for k in range(len(call.index)):
            new = [
                real(constant if source is None else source[k, j]) * alpha
                for j in range(found.shape[1])
                if found[k, j] >= 0
            ]
            if plan.divisors is not None:
                new = [v / int(plan.divisors[found[k, j]]) for j, v in enumerate(new)]
            values[k] = _reduced(n, reduction, include, real(base[k]), new)
        return values


def _reduced(n: Any, reduction: str, include: bool, old: Any, new: list[Any]) -> Any:
    if not new:
        return old
    if not reduction:
        if any(v is not new[-1] and not n.equal(v, new[-1]) for v in new):
            raise NotSeparatedError
        return new[-1]
    values = [old, *new] if include else new
    total = values[0]
    for value in values[1:]:
        if reduction in ("sum", "mean"):
            total = total + value
        elif reduction == "prod":
            total = total * value
        else:
            total = n.maximum(total, value) if reduction == "amax" else n.minimum(total, value)
    return total / len(values) if reduction == "mean" else total


def places(args: Sequence[Any], index: tuple[int, ...]) -> list[Any]:
    """Return what a plan is made from: integer operands as they are, floating ones as tensors of flat indices."""
    return [_plain(value, position in index) for position, value in enumerate(args)]


def _plain(value: Any, integer: bool) -> Any:
    if isinstance(value, Enclosure):
        return value.mid if integer else ids(value.mid)
    return type(value)(_plain(v, integer) for v in value) if isinstance(value, (list, tuple)) else value


def leaves(tree: Any) -> list[Enclosure]:
    """Return the enclosures in an argument."""
    if isinstance(tree, Enclosure):
        return [tree]
    return [v for item in tree for v in leaves(item)] if isinstance(tree, (list, tuple)) else []
