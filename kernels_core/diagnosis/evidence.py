"""What a hypothesis is tested against, and the one test that all of them pass or fail.

A hypothesis says what the kernel computed instead. It becomes a candidate: an interval for every element. It explains
a failure where

1. every failing element lies in the candidate's interval, and every other element too unless the candidate is about
   the failing ones alone;
2. that is no accident: a value that is wrong by as much, |actual - exact|, lies by chance in an interval of half-width
   b with probability about b / |actual - exact|; the product over the failing elements, times the number of
   candidates tried, must be below 2^-12;
3. more elements fail than the candidate has fitted parameters.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.errors import ExactRefError
from kernels_core.reference import Check, Reference, Result

Tensor = torch.Tensor
Tensors = dict[str, Tensor | None]

SECONDS = 4.0  # of CPU time that the diagnosis of one case may take
BITS = 12.0  # how improbable an accident must be, 2^-BITS
_TRIED = 8.0  # log2 of the number of candidates that all hypotheses try together
_MOST = 40.0  # bits that one element may tell


@dataclasses.dataclass
class Setting:
    """How the failure came about; shared by the rows of one case.

    Attributes:
        check: the reference at the inputs.
        upstream: upstream gradients, one per floating output.
        results: what is admissible, by name.
        actual: what the kernel returned, by name.
        again: runs the kernel on other inputs (a fresh call, by name), with other upstream gradients where these are
            given; returns outputs and gradients by name.
        function: the kernel, None where it is not to be looked into.
        cost: CPU time of one evaluation of the check, which another one will take again.
        deadline: in CPU time of this process, which does not depend on what else the machine does.
        found: what alternative references admit, by what makes them different.
        kept: what else was computed once for the case.
        cut_short: set where time ran out.
    """

    check: Check
    upstream: Sequence[Tensor]
    results: Mapping[str, Result]
    actual: Mapping[str, Tensor | None]
    again: Callable[..., Tensors] | None = None
    function: Callable[..., Any] | None = None
    cost: float = 0.0
    deadline: float = dataclasses.field(default_factory=lambda: time.process_time() + SECONDS)
    found: dict[Any, Mapping[str, Enclosure] | None] = dataclasses.field(default_factory=dict)
    kept: dict[str, Any] = dataclasses.field(default_factory=dict)
    cut_short: bool = False

    def late(self) -> bool:
        """Return True, from then on, where the time is over."""
        self.cut_short = self.cut_short or time.process_time() + self.cost > self.deadline
        return self.cut_short

    def admits(
        self,
        key: Any,
        *,
        reference: Reference | None = None,
        arguments: Mapping[str, Any] | None = None,
        upstream: Sequence[Tensor] | None = None,
    ) -> Mapping[str, Enclosure] | None:
        """Return what this check admits with something replaced; None where that cannot be computed, or time is over.

        Args:
            key: names the replacement; what was computed once for a case is kept.
            reference: in place of the check's.
            arguments: by name.
            upstream: gradients.
        """
        if key not in self.found and not self.late():
            self.found[key] = self._admitted(reference, arguments, upstream)
        return self.found.get(key)

    def _admitted(
        self,
        reference: Reference | None,
        arguments: Mapping[str, Any] | None,
        upstream: Sequence[Tensor] | None,
    ) -> Mapping[str, Enclosure] | None:
        check = self._with(reference, arguments)
        try:
            results = check.both(self.upstream if upstream is None else upstream)
        except (ExactRefError, RuntimeError, TypeError, ValueError):  # it makes no sense for these shapes
            return None
        return {name: result.enclosure for name, result in results.items()}

    def _with(self, reference: Reference | None, arguments: Mapping[str, Any] | None) -> Check:
        """Return the check with something replaced; other values of the arguments take the programs as traced."""
        old = self.check
        if reference is None and arguments is None:
            return old
        check = Check(reference or old.reference, old.arguments if arguments is None else arguments,
                      profile=old.profile, wrt=old.wrt, kinks="convention")  # fmt: skip
        if reference is None:
            check.__dict__.update(forward=old.forward, joint=old.joint)
        return check


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One violated tensor.

    Attributes:
        result: what is admissible.
        actual: what the kernel returned, on the device of the result.
        failing: True where an element is violated.
        setting: None where only the values are known.
    """

    result: Result
    actual: Tensor
    failing: Tensor
    setting: Setting | None = None

    @property
    def mid(self) -> Tensor:
        """The exact value, to float64."""
        return self.result.enclosure.mid

    @property
    def bound(self) -> Tensor:
        """What is permitted around it."""
        return self.result.enclosure.bound_or_zero().expand(self.mid.shape)

    @property
    def value(self) -> Tensor:
        """What the kernel returned, in float64."""
        return self.actual.to(torch.float64)

    @property
    def gradient(self) -> bool:
        """True for a gradient, False for an output."""
        return self.result.name.startswith("grad_")

    @property
    def count(self) -> str:
        """The failing elements in words, with their verb."""
        number = int(self.failing.sum())
        return f"all {number} failing elements are" if number > 1 else "the failing element is"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What the kernel would return if the hypothesis held.

    Attributes:
        sentence: for the screen; "{count}" stands for "all 64 failing elements are".
        mid, bound: the interval of every element, of the tensor's shape.
        everywhere: False where the hypothesis is about the failing elements alone.
        fitted: number of parameters that were read off the failing values.
        known: bits that the failing elements tell beside where they lie; None counts what their place tells.
    """

    sentence: str
    mid: Tensor
    bound: Tensor
    everywhere: bool = True
    fitted: int = 0
    known: float | None = None


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A guess at what the kernel did instead.

    Attributes:
        name: of the fault.
        transform: what is done to the reference, for the documentation.
        candidates: what the kernel would have returned, in the order of likelihood.
    """

    name: str
    transform: str
    candidates: Callable[[Evidence], Iterator[Candidate]]


def explains(candidate: Candidate, evidence: Evidence) -> bool:
    """Return True where the candidate explains the failure, see the module."""
    failing = evidence.failing
    where = torch.ones_like(failing) if candidate.everywhere else failing
    mid, bound = (t.expand(failing.shape)[where] for t in (candidate.mid, candidate.bound))
    actual = evidence.value[where]
    same = (actual == mid) | (actual.isnan() & mid.isnan())
    if not bool((same | ((actual - mid).abs() <= bound)).all()):
        return False
    return int(failing.sum()) > candidate.fitted and _bits(candidate, evidence) >= BITS


def _bits(candidate: Candidate, evidence: Evidence) -> float:
    if candidate.known is not None:
        return candidate.known - _TRIED
    failing = evidence.failing
    off = (evidence.value - evidence.mid).abs()[failing]
    width = candidate.bound.expand(failing.shape)[failing]
    told = torch.log2(off / width).nan_to_num(nan=_MOST if math.isfinite(float(width.sum())) else 0.0, posinf=_MOST)
    told = told.clamp(0, _MOST).sort().values  # what was fitted tells nothing: the most telling elements do not count
    return float(told[: len(told) - candidate.fitted].sum()) - _TRIED
