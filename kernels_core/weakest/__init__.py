"""The least generous arithmetic that would cover what is violated: "consistent with tf32 inputs", or with none.

Candidates change the case's profile in one respect (candidates.py). One is named where

1. its bounds cover every element of every violated tensor;
2. they mean something: a zero in every place would not lie within them by accident. A zero lies in an interval of
   half-width b around x with probability about b / |x|; over the elements, times the candidates, that is below 2^-12
   (the measure of diagnosis/evidence.py);
3. the errors are those that such arithmetic makes (likeness.py);
4. no other such candidate is less generous: grants no more on any of these elements, and less on one.

Candidates that grant the same, and those that grant more here and less there, are named together. A tensor whose values
are explained otherwise (a factor, a sign, a wrong formula) is a matter of no arithmetic and is left out. Where no
candidate covers all violated tensors, each is looked at alone.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

import torch

from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.errors import ExactRefError
from kernels_core.profiles import Profile
from kernels_core.report import Consistency
from kernels_core.result import Result
from kernels_core.weakest.candidates import Candidate, candidates, everything
from kernels_core.weakest.likeness import Errors, bound_of, foresees, is_alike

Tensor = torch.Tensor
SECONDS = 4.0  # of CPU time
BITS, MOST = 20.0, 40.0  # 2^-12, and 2^-8 for the number of candidates; what one element may tell
_SAME = 1 + 2.0**-30  # bounds that differ by less are equal
_FORESEEN = ("matmul_input", "flush_subnormals")


@dataclasses.dataclass(frozen=True)
class Violation:
    """One violated tensor: what the kernel returned, and where it is violated."""

    actual: Tensor
    failing: Tensor


@dataclasses.dataclass
class _Found:
    """A candidate that covers: its check, and what it admits, by tensor."""

    candidate: Candidate
    check: Check
    results: Mapping[str, Result]


class Search:
    """The candidates of one case; `late` is set where its time is over."""

    def __init__(self, check: Check, upstream: Sequence[Tensor] | None, cost: float) -> None:
        """Start the clock.

        Args:
            check: the reference at its inputs, under the profile that is violated.
            upstream: the upstream gradients, None where the outputs alone are checked.
            cost: CPU time of one evaluation of the check.
        """
        self.check, self.upstream, self.cost = check, upstream, cost
        self.inputs = {**check.parts, **(check.upstream(upstream) if upstream is not None and check.wrt else {})}
        self.program = check.forward if upstream is None or not check.wrt else check.joint
        self.deadline, self.late = time.process_time() + SECONDS, False

    def covering(self, violated: Mapping[str, Violation]) -> list[_Found]:
        """Return the candidates that cover at least one of the tensors, with those that they cover."""
        open_ = self._admitted(everything(self.check.profile), violated, strictly=False)
        if open_ is None or not open_[1]:
            return []
        left = {name: violated[name] for name in open_[1]}
        found = []
        for candidate in candidates(self.check.profile):
            admitted = self._admitted(candidate.profile, left, strictly=True)
            if admitted is not None and admitted[1]:
                found.append(_Found(candidate, *admitted))
        return found

    def _admitted(
        self, profile: Profile, violated: Mapping[str, Violation], *, strictly: bool
    ) -> tuple[Check, dict[str, Result]] | None:
        """Return the results of the tensors that are covered (or, where not strictly, not violated) everywhere."""
        self.late = self.late or time.process_time() + self.cost > self.deadline
        if self.late:
            return None
        other = _under(self.check, profile)
        try:
            results = other.outputs() if self.upstream is None else other.both(self.upstream)
        except ExactRefError:
            return None
        return other, {n: results[n] for n, v in violated.items() if _fits(results[n], v.actual, strictly)}


def weakest(
    check: Check, upstream: Sequence[Tensor] | None, violated: Mapping[str, Violation], cost: float
) -> tuple[Consistency, ...]:
    """Return what the violated tensors are consistent with: one line for all of them, or one for each.

    Args:
        check: the reference at its inputs, under the profile that is violated.
        upstream: the upstream gradients, None where the outputs alone are checked.
        violated: by name; tensors that are explained otherwise left out.
        cost: CPU time of one evaluation of the check.
    """
    if not violated:
        return ()
    if 2 * cost > SECONDS:
        return (Consistency(tuple(violated), (), f"profiles not tried: each would take {cost:.0f} s", decided=False),)
    search = Search(check, upstream, cost)
    found = search.covering(violated)
    together = _named(search, found, violated)
    alone = [_named(search, found, {name: violated[name]}) for name in violated]
    if together.profiles or len(violated) == 1 or not any(one.profiles for one in alone):
        return (together,)
    return tuple(alone)


def _named(search: Search, found: Sequence[_Found], violated: Mapping[str, Violation]) -> Consistency:
    covering = [one for one in found if all(name in one.results for name in violated)]
    likely = [one for one in covering if not _is_late(search) and _is_like(search, one, violated)]
    telling = [one for one in likely if all(_means_something(one.results[name]) for name in violated)]
    least = [one for one in telling if not any(_less_generous(other, one, violated) for other in telling)]
    rest = "; not every profile was tried" if search.late else ""
    if least:
        words = " or ".join(dict.fromkeys(one.candidate.words for one in least))
        titles = tuple(one.candidate.profile.title for one in least)
        return Consistency(tuple(violated), titles, f"consistent with {words}{rest}", decided=not search.late)
    none = "consistent with none of the arithmetic profiles"
    if likely:
        none += f" that means anything: {likely[0].candidate.words} would cover zeros as well"
    return Consistency(tuple(violated), (), none + rest, decided=not search.late)


def _is_late(search: Search) -> bool:
    search.late = search.late or time.process_time() + search.cost > search.deadline
    return search.late


def _is_like(search: Search, found: _Found, violated: Mapping[str, Violation]) -> bool:
    foreseen = found.candidate.knob in _FORESEEN
    errors = {
        name: Errors(found.results[name], v.actual, v.failing if foreseen else torch.ones_like(v.failing))
        for name, v in violated.items()
    }
    if foreseen:
        return foresees(found.check, search.program, search.inputs, errors, found.candidate.knob)
    return is_alike(found.check, search.program, search.inputs, errors)


def _less_generous(one: _Found, other: _Found, violated: Mapping[str, Violation]) -> bool:
    """Return True where `one` grants no more than `other` on any element, and less on some."""
    pairs = [(bound_of(one.results[name]), bound_of(other.results[name])) for name in violated]
    no_more = all(bool((a <= b * _SAME).all()) for a, b in pairs)
    return no_more and any(bool((a * _SAME < b).any()) for a, b in pairs)


def _means_something(result: Result) -> bool:
    """Return False where a zero in every place might be covered as well."""
    told = torch.log2(result.enclosure.mid.abs() / bound_of(result)).nan_to_num(nan=0.0, posinf=MOST, neginf=0.0)
    return float(told.clamp(0, MOST).sum()) >= BITS


def _fits(result: Result, actual: Tensor, strictly: bool) -> bool:
    if not result.enclosure.floating:
        return False
    verdict = result.verdict(actual)
    return bool(((verdict == Element.COVERED) if strictly else (verdict != Element.VIOLATED)).all())


def _under(check: Check, profile: Profile) -> Check:
    """Return the check under another profile; its programs are kept."""
    other = Check(check.reference, check.arguments, profile=profile, wrt=check.wrt, kinks=check.kinks,
                  budget=check.budget)  # fmt: skip
    kept = ("forward", "joint", "joint_beside", "parts", "declared_program")
    other.__dict__.update({name: check.__dict__[name] for name in kept if name in check.__dict__})
    return other
