"""What happens at the targets of a scatter: the reductions of scatter.py on flat tensors, with their bounds.

With c_j the contributions of a target (its own old value among them, where it has one), C_j their bounds:

    sum     |s' - s| <= sum C_j + (n - 1) u sum (|c_j| + C_j)             any order; n counts what can be nonzero
    prod    |p' - p| <= (prod (|c_j| + C_j) - prod |c_j|) + (n - 1) u prod (|c_j| + C_j) + eta prod max(1, |c_j| + C_j)
    max/min |m' - m| <= max C_j                                           both are 1-Lipschitz in the maximum norm

Several contributions are added in the format of the result: kernels add to the target in memory, one by one.
Two unequal values for one place, without a reduction, are undefined: nothing is known about that target.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.movement import held

Tensor = torch.Tensor

Pair = tuple[Tensor, Tensor]


def flat_pair(value: Any) -> Pair | None:
    """Return midpoint and bound of an enclosure as flat tensors, None for None."""
    if value is None:
        return None
    mid = value.mid.reshape(-1)
    bound = (
        torch.zeros(mid.shape, dtype=torch.float64, device=mid.device)
        if value.bound is None
        else value.bound.expand(value.shape).reshape(-1)
    )
    return mid, bound


def contributions(local: Local, source: Any, sources: Tensor | None, divisors: Tensor | None, kept: Tensor) -> Pair:
    """Return the values that are written: those of the source, divided where the plan says so, or a constant."""
    if sources is None:
        dtype = torch.float64 if local.nominal.is_floating_point else local.nominal
        value = torch.full((int(kept.sum()),), source, dtype=dtype, device=kept.device)
        return value, torch.full(value.shape, held(local, source), dtype=torch.float64, device=kept.device)
    flat = flat_pair(source)
    mid, bound = flat[0][sources[kept]], flat[1][sources[kept]]  # type: ignore[index]
    if divisors is not None:
        divisor = divisors[kept].to(torch.float64)
        mid, bound = mid / divisor, bound / divisor
        bound = torch.where(
            divisor == 1, bound, bound * (1 + 2 * local.u) + 2 * local.u * mid.abs() + local.eta
        )  # x (1/n) is allowed
    return mid, bound


class Reduction:
    """One scatter on flat tensors."""

    def __init__(
        self, local: Local, shape: Any, targets: Tensor, source: Pair, base: Pair | None, include: bool, alpha: float
    ) -> None:
        """Take flat targets, contributions and old values (None for zeros)."""
        self.local, self.targets, self.include, self.base = local, targets, include, base
        self.size = int(torch.Size(shape).numel())
        self.source = self._scaled(source, alpha) if alpha != 1 else source
        self.count = torch.zeros(self.size, dtype=torch.float64, device=targets.device).index_add_(
            0, targets, torch.ones(targets.shape, dtype=torch.float64, device=targets.device))  # fmt: skip

    def _scaled(self, source: Pair, alpha: float) -> Pair:
        mid, bound = source[0] * (alpha if source[0].is_floating_point() else int(alpha)), source[1] * abs(alpha)
        if mid.is_floating_point():
            bound = (
                bound * (1 + self.local.u)
                + self.local.u * mid.abs() * (2 if not float(alpha).is_integer() else 1)
                + self.local.eta
            )
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
        written = torch.zeros(self.size, dtype=torch.float64, device=mid.device).scatter_reduce(
            0, self.targets, new_bound, "amax"
        )
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
        if not value.floating:  # PyTorch rounds integers down
            whole = value.mid.div(terms.to(value.mid.dtype), rounding_mode="floor")
            return Enclosure(whole if self.include else torch.where(self.count == 0, self._old()[0], whole))
        mid = value.mid / terms
        bound = value.bound_or_zero() / terms
        rounding = torch.where(self.count == 0, 0.0, 2 * self.local.u * INFLATE * (mid.abs() + bound) + self.local.eta)
        rounding = torch.where(mid.isfinite(), rounding, 0.0)
        if not self.include:
            mid, bound = (
                torch.where(self.count == 0, self._old()[0], mid),
                torch.where(self.count == 0, self._old()[1], bound),
            )
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
        spread = (
            self._collect(old_bound, new_bound, "amax") > 0
        )  # without it the difference below is only float64 noise
        error = torch.where(spread, (upper - mid.abs()).abs() + upper * 2.0**-50 * terms, 0.0)
        error = error + rounding * upper + torch.where(terms > 1, self.local.eta * grown, 0.0)
        return self._classed(mid, error.mul_(INFLATE).mul_(1 + terms * 2.0**-51))

    def _extreme(self, how: str) -> Enclosure:
        (old, old_bound), (new, new_bound) = self._old(), self.source
        mid = self._collect(old, new.to(old.dtype), how)
        return (
            Enclosure(mid)
            if not mid.is_floating_point()
            else Enclosure(mid, self._collect(old_bound, new_bound, "amax"))
        )

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
        loose = [
            (~b.isfinite() | (~m.isfinite() & (b != 0))).to(torch.float64)
            for m, b in ((old, old_bound), (new, new_bound))
        ]
        special = [(~m.isfinite()).to(torch.float64) for m in (old, new)]
        certain = (
            (self._collect(loose[0], loose[1], "sum") == 0)
            & (self._collect(special[0], special[1], "sum") > 0)
            & ~mid.isfinite()
        )
        error = torch.where(certain, 0.0, torch.where(error.isnan(), torch.inf, error))
        return Enclosure(
            torch.where(certain | mid.isfinite(), mid, torch.nan),
            torch.where(certain | mid.isfinite(), error, torch.inf),
        )
