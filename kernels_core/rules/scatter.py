"""Writing to places: each contribution has one target, and a target collects none, one or several.

With c_j the contributions of a target (its own old value among them, where it has one), C_j their bounds:

    sum     |s' - s| <= sum C_j + (n - 1) u sum (|c_j| + C_j)             any order; n counts what can be nonzero
    prod    |p' - p| <= (prod (|c_j| + C_j) - prod |c_j|) + (n - 1) u prod (|c_j| + C_j) + eta prod max(1, |c_j| + C_j)
    max/min |m' - m| <= max C_j                                           both are 1-Lipschitz in the maximum norm

Several contributions are added in the format of the result: kernels add to the target in memory, one by one.
Two unequal values for one place, without a reduction, are undefined: nothing is known about that target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernels_core.arithmetic import INFLATE, Local
from kernels_core.enclosure import Enclosure
from kernels_core.numbers import NotSeparatedError
from kernels_core.program import replace_refs
from kernels_core.rules.cones import operand_arguments
from kernels_core.rules.record import Rule

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
        placed = [_plain(a, k in self.index) for k, a in enumerate(args)]
        shape = local.step.shape
        plan = self.plan(*placed, result=shape, **kwargs)
        base = args[self.base] if self.base is not None else None
        source = args[self.source]
        reduction, include = self.reduce(args, kwargs)
        kept = plan.targets >= 0
        targets = plan.targets[kept].long()
        work = _Work(local, shape, targets, _contributions(local, source, plan, kept), _flat(base), include, float(kwargs.get("alpha", 1)))
        value = getattr(work, reduction or "overwrite")()
        value = self._unsure(local, args, plan, work, value)
        return Enclosure(value.mid.reshape(shape), None if value.bound is None else value.bound.reshape(shape), None if value.unsure is None else value.unsure.reshape(shape))

    def _unsure(self, local: Local, args: Any, plan: Plan, work: _Work, value: Enclosure) -> Enclosure:
        unsure = [v.unsure for k in self.index for v in _leaves(args[k]) if v.unsure is not None]
        if not any(bool(u.any()) for u in unsure):
            return value
        if not value.floating:
            return Enclosure(value.mid, None, torch.ones_like(value.mid, dtype=torch.bool))
        if plan.lines is None or self.reduce(args, {})[0] not in ("", "sum") or plan.sources is None:
            return Enclosure(value.mid, torch.full_like(value.mid, torch.inf))
        # an unsure contribution reaches at most one target of its line, or is missing there: |value' - value| grows by at
        # most the magnitudes of the unsure contributions; without a reduction the old value and the new one may change places
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
        return np.where(place < stop[:, None], order[np.minimum(place, max(0, len(order) - 1))] if len(order) else -1, -1)  # type: ignore[no-any-return]

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
        base = operands[owners.index(self.base)] if self.base is not None and self.base in owners else [zero] * len(call.index)
        source = operands[owners.index(self.source)] if plan.sources is not None else None
        constant = None if source is not None else real(n.of(args[self.source]))
        alpha = n.of(float(kwargs.get("alpha", 1))) if call.meta.dtype.is_floating_point else kwargs.get("alpha", 1)
        reduction, include = self.reduce(args, kwargs)
        values = np.empty(len(call.index), dtype=object)
        for k in range(len(call.index)):
            new = [real(constant if source is None else source[k, j]) * alpha for j in range(found.shape[1]) if found[k, j] >= 0]
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


def _plain(value: Any, integer: bool) -> Any:
    if isinstance(value, Enclosure):
        return value.mid if integer else ids(value.mid)
    return type(value)(_plain(v, integer) for v in value) if isinstance(value, (list, tuple)) else value


def _leaves(tree: Any) -> list[Enclosure]:
    if isinstance(tree, Enclosure):
        return [tree]
    return [v for item in tree for v in _leaves(item)] if isinstance(tree, (list, tuple)) else []


Pair = tuple[Tensor, Tensor]


def _flat(value: Any) -> Pair | None:
    if value is None:
        return None
    mid = value.mid.reshape(-1)
    bound = torch.zeros(mid.shape, dtype=torch.float64, device=mid.device) if value.bound is None else value.bound.expand(value.shape).reshape(-1)
    return mid, bound


def _contributions(local: Local, source: Any, plan: Plan, kept: Tensor) -> Pair:
    if plan.sources is None:
        dtype = torch.float64 if local.nominal.is_floating_point else local.nominal
        value = torch.full((int(kept.sum()),), source, dtype=dtype, device=kept.device)
        from kernels_core.rules.movement import held

        return value, torch.full(value.shape, held(local, source), dtype=torch.float64, device=kept.device)
    flat = _flat(source)
    mid, bound = flat[0][plan.sources[kept]], flat[1][plan.sources[kept]]  # type: ignore[index]
    if plan.divisors is not None:
        divisor = plan.divisors[kept].to(torch.float64)
        mid, bound = mid / divisor, bound / divisor
        bound = torch.where(divisor == 1, bound, bound * (1 + 2 * local.u) + 2 * local.u * mid.abs() + local.eta)  # x (1/n) is allowed
    return mid, bound


class _Work:
    """One scatter on flat tensors."""

    def __init__(self, local: Local, shape: Any, targets: Tensor, source: Pair, base: Pair | None, include: bool, alpha: float) -> None:
        self.local, self.targets, self.include, self.base = local, targets, include, base
        self.size = int(torch.Size(shape).numel())
        self.source = self._scaled(source, alpha) if alpha != 1 else source
        self.count = torch.zeros(self.size, dtype=torch.float64, device=targets.device).index_add_(
            0, targets, torch.ones(targets.shape, dtype=torch.float64, device=targets.device))  # fmt: skip

    def _scaled(self, source: Pair, alpha: float) -> Pair:
        mid, bound = source[0] * (alpha if source[0].is_floating_point() else int(alpha)), source[1] * abs(alpha)
        if mid.is_floating_point():
            bound = bound * (1 + self.local.u) + self.local.u * mid.abs() * (2 if not float(alpha).is_integer() else 1) + self.local.eta
        return mid, bound

    def _old(self) -> Pair:
        if self.base is not None:
            return self.base
        zeros = torch.zeros(self.size, dtype=self.source[0].dtype, device=self.targets.device)
        return zeros, torch.zeros(self.size, dtype=torch.float64, device=self.targets.device)

    def _collect(self, old: Tensor, new: Tensor, how: str) -> Tensor:
        return old.scatter_reduce(0, self.targets, new, how, include_self=self.include)

    def overwrite(self) -> Enclosure:
        """The last value wins; unequal ones are undefined."""
        (old, old_bound), (new, new_bound) = self._old(), self.source
        mid = old.index_put((self.targets,), new.to(old.dtype))
        arrived = mid[self.targets]
        differs = (arrived != new) & ~(arrived.isnan() & new.isnan())
        if not mid.is_floating_point():
            unsure = torch.zeros(self.size, dtype=torch.bool, device=mid.device)
            unsure[self.targets[differs]] = True
            return Enclosure(mid, None, unsure)
        written = torch.zeros(self.size, dtype=torch.float64, device=mid.device).scatter_reduce(0, self.targets, new_bound, "amax")
        bound = torch.where(self.count > 0, written, old_bound)
        bound[self.targets[differs]] = torch.inf
        return Enclosure(torch.where(bound.isinf(), torch.where(mid.isfinite(), mid, torch.nan), mid), bound)

    def sum(self) -> Enclosure:
        """See the module."""
        (old, old_bound), (new, new_bound) = self._old(), self.source
        if not old.is_floating_point():
            return Enclosure(self._collect(old, new.to(old.dtype), "sum"))
        mid = self._collect(old, new, "sum")
        takes_part = (old != 0) | (old_bound != 0) if self.include else (self.count == 0)
        terms = self.count + takes_part
        magnitude = self._collect(old.abs() + old_bound, new.abs() + new_bound, "sum")
        error = self._collect(old_bound, new_bound, "sum") + (terms - 1).clamp_(min=0) * self.local.u * magnitude
        error.mul_(INFLATE).mul_(1 + terms * 2.0**-52)
        return self._classed(mid, error)

    def mean(self) -> Enclosure:
        """The sum divided by its number of terms."""
        value = self.sum()
        terms = (self.count + (1 if self.include else 0)).clamp(min=1)
        mid = value.mid / terms
        bound = value.bound_or_zero() / terms
        rounding = torch.where(self.count == 0, 0.0, 2 * self.local.u * INFLATE * (mid.abs() + bound) + self.local.eta)
        rounding = torch.where(mid.isfinite(), rounding, 0.0)
        if not self.include:
            mid, bound = torch.where(self.count == 0, self._old()[0], mid), torch.where(self.count == 0, self._old()[1], bound)
        return Enclosure(mid, bound * INFLATE + rounding)

    def prod(self) -> Enclosure:
        """See the module."""
        (old, old_bound), (new, new_bound) = self._old(), self.source
        mid = self._collect(old, new.to(old.dtype), "prod")
        if not mid.is_floating_point():
            return Enclosure(mid)
        upper = self._collect(old.abs() + old_bound, new.abs() + new_bound, "prod")
        grown = self._collect((old.abs() + old_bound).clamp(min=1), (new.abs() + new_bound).clamp(min=1), "prod")
        terms = self.count + (1 if self.include else 0)
        rounding = torch.expm1((terms - 1).clamp(min=0) * self.local.u * 1.0001)
        spread = self._collect(old_bound, new_bound, "amax") > 0  # without it the difference below is only float64 noise
        error = torch.where(spread, (upper - mid.abs()).abs() + upper * 2.0**-50 * terms, 0.0)
        error = error + rounding * upper + torch.where(terms > 1, self.local.eta * grown, 0.0)
        return self._classed(mid, error.mul_(INFLATE).mul_(1 + terms * 2.0**-51))

    def _extreme(self, how: str) -> Enclosure:
        (old, old_bound), (new, new_bound) = self._old(), self.source
        mid = self._collect(old, new.to(old.dtype), how)
        return Enclosure(mid) if not mid.is_floating_point() else Enclosure(mid, self._collect(old_bound, new_bound, "amax"))

    def amax(self) -> Enclosure:
        """See the module."""
        return self._extreme("amax")

    def amin(self) -> Enclosure:
        """See the module."""
        return self._extreme("amin")

    def _classed(self, mid: Tensor, error: Tensor) -> Enclosure:
        """Give an infinity or NaN that comes from exact operands its class."""
        if bool(mid.isfinite().all()) and bool(error.isfinite().all()):
            return Enclosure(mid, error)
        (old, old_bound), (new, new_bound) = self._old(), self.source
        loose = [(~b.isfinite() | (~m.isfinite() & (b != 0))).to(torch.float64) for m, b in ((old, old_bound), (new, new_bound))]
        special = [(~m.isfinite()).to(torch.float64) for m in (old, new)]
        certain = (self._collect(*loose, "sum") == 0) & (self._collect(*special, "sum") > 0) & ~mid.isfinite()
        error = torch.where(certain, 0.0, torch.where(error.isnan(), torch.inf, error))
        return Enclosure(torch.where(certain | mid.isfinite(), mid, torch.nan), torch.where(certain | mid.isfinite(), error, torch.inf))
