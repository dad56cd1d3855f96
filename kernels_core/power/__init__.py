"""The mutation score: how many planted faults a case would catch.

A kernel is run again and again, each time with one fault: in its results (results.py), or in one operation of its
forward or backward where these are made of PyTorch operations (steps.py). Each mutant is judged as a check judges:

    caught        violated, suspect or raised
    equivalent    no value changed, or the fault's float64 value is the exact one to within its own uncertainty
    legal         a correct kernel returns the same, bit for bit, whose sums run in another order (witness.py)
    missed        the rest; a lower precision that stays inside the bounds and the audit's 5 bits among them
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernels_core.audit import audit
from kernels_core.coverage import Element
from kernels_core.errors import UsageError
from kernels_core.kernel.call import KernelRaisedError, draw_upstream, run_kernel
from kernels_core.power import results as of_results
from kernels_core.power.score import Fate, Mutant, Score
from kernels_core.power.sizes import described
from kernels_core.power.steps import Fault, Steps, counted, faults
from kernels_core.power.witness import returned_in_another_order
from kernels_core.profiles.knobs import Given
from kernels_core.reference import Result
from kernels_core.report import Precision
from kernels_core.verify import prepared, with_parameters

Tensor = torch.Tensor
Tensors = Mapping[str, Tensor | None]
IN_ANOTHER_ORDER = "float32 sums in another order return the same"
FEWEST = 20  # mutants of a case, where there are fewer the score means little


class Laboratory:
    """One kernel at fixed inputs, undamaged and damaged."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Mapping[str, Any],
        *,
        reference: Callable[..., Any] | None = None,
        reference_backward: Callable[..., Any] | None = None,
        surrogate: bool = False,
        wrt: Sequence[str] | None = None,
        seed: int = 0,
        profile: Given | None = None,
        bound: str | None = None,
        kinks: str = "accept",
    ) -> None:
        """Run the kernel undamaged and certify it; arguments as in `verify`.

        Raises:
            UsageError: the kernel raised, or is not covered to begin with: faults are planted in what is right.
        """
        function, inputs, wrt = with_parameters(function, inputs, wrt, reference)
        self.function, self.inputs = function, inputs
        self.check = prepared(function, inputs, reference=reference, reference_backward=reference_backward,
                              surrogate=surrogate, wrt=wrt, profile=profile, bound=bound, kinks=kinks)  # fmt: skip
        self.arguments = self.check.arguments
        self.upstream = draw_upstream(self.check, seed)
        try:
            self.undamaged = self.run()
        except KernelRaisedError as error:
            raise UsageError(f"the kernel raised: {error}\nfaults are planted in a kernel that is right") from None
        self.results: Mapping[str, Result] = self.check.both(self.upstream)
        fate = self.judge(self.undamaged)
        if fate is not Fate.MISSED:
            raise UsageError(
                f"the kernel is not covered by itself: {fate.value}\nmend it first, `exactref check` says how"
            )

    def run(self) -> dict[str, Tensor | None]:
        """Return outputs and gradients of the kernel as it is."""
        outputs, gradients = run_kernel(self.function, self.inputs, self.arguments, self.check, self.upstream)
        return {**outputs, **(gradients or {})}

    def judge(self, actual: Tensors) -> Fate:
        """Return what a check would make of these results; MISSED where it would pass them."""
        return self.judged(actual)[0]

    def judged(self, actual: Tensors) -> tuple[Fate, str]:
        """Return the same, and for a fault that is missed how large it is."""
        present: dict[str, Tensor] = {}
        for name, result in self.results.items():
            value = actual.get(name)
            if value is None:
                value = torch.zeros(result.meta.shape, dtype=result.meta.dtype)
            if tuple(value.shape) != tuple(result.meta.shape) or value.dtype is not result.meta.dtype:
                return Fate.VIOLATED, ""
            present[name] = value
        changed = {name: value for name, value in present.items() if not _same(value, self._before(name))}
        for name, value in (changed or present).items():
            if _violated(self.results[name], value):
                return Fate.VIOLATED, ""
        precision = audit(self.check, self.upstream, self.results, changed or present)
        if any(found.suspect for found in precision.values()):
            return Fate.SUSPECT, ""
        return Fate.MISSED, "; ".join(self._size(name, value, precision.get(name)) for name, value in changed.items())

    def _size(self, name: str, value: Tensor, found: Precision | None) -> str:
        before = self._before(name)
        before = torch.zeros_like(value) if before is None else before
        return described(self.check.joint, self.results, before, name, value, found)

    def _before(self, name: str) -> Tensor | None:
        return getattr(self, "undamaged", {}).get(name)

    def unchanged(self, actual: Tensors) -> bool:
        """Return True where every value is that of the undamaged kernel."""
        return all(_same(value, self._before(name)) for name, value in actual.items())


def _violated(result: Result, value: Tensor) -> bool:
    """Return True where an element is violated; the exact tier is asked only where float64 shows none."""
    for tier in (dataclasses.replace(result, source=None), result):
        codes = tier.verdict(value)
        if bool((codes == Element.VIOLATED).any()) or not bool((codes == Element.UNDECIDED).any()):
            return bool((codes == Element.VIOLATED).any())
    return False


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def power(laboratory: Laboratory, limit: int = 400) -> Score:
    """Return the fate of every mutant.

    Args:
        laboratory: the kernel.
        limit: of mutants of single operations, spread evenly over all that there are.
    """
    mutants = [*_in_results(laboratory), *_in_steps(laboratory, limit)]
    return Score(tuple(mutants))


def _in_results(laboratory: Laboratory) -> Iterator[Mutant]:
    floating = {n: t for n, t in laboratory.undamaged.items() if t is not None and t.is_floating_point() and t.numel()}
    for name, tensor in floating.items():
        for kind, damage in of_results.KINDS.items():
            damaged = damage(tensor.detach())
            if damaged is None:
                continue
            actual = {**laboratory.undamaged, name: damaged}
            same = laboratory.unchanged(actual)
            fate, reason = (Fate.EQUIVALENT, "no value changed") if same else laboratory.judged(actual)
            if fate is Fate.MISSED and returned_in_another_order(laboratory.run, actual, None):
                fate, reason = Fate.LEGAL, IN_ANOTHER_ORDER
            yield Mutant(kind, f"result {name}", fate, reason, damaged=actual)


def _in_steps(laboratory: Laboratory, limit: int) -> Iterator[Mutant]:
    operations = counted(laboratory.run)
    planned = faults(operations)
    for fault in planned[:: max(1, -(-len(planned) // limit))]:
        yield _planted(laboratory, fault)


def _planted(laboratory: Laboratory, fault: Fault) -> Mutant:
    place = f"operation {fault.number}, {fault.operation}"
    try:
        with Steps(fault):
            actual = laboratory.run()
    except KernelRaisedError as error:
        return Mutant(fault.kind, place, Fate.RAISED, str(error))
    if laboratory.unchanged(actual):
        return Mutant(fault.kind, place, Fate.EQUIVALENT, "no value changed")
    fate, reason = laboratory.judged(actual)
    if fate is Fate.MISSED and not fault.lowers_precision and _exactly_right(laboratory, fault):
        return Mutant(fault.kind, place, Fate.EQUIVALENT, "its exact value is the right one")
    if fate is Fate.MISSED and returned_in_another_order(laboratory.run, actual, fault):
        fate, reason = Fate.LEGAL, IN_ANOTHER_ORDER
    return Mutant(fault.kind, place, fate, reason, damaged=actual)


def _exactly_right(laboratory: Laboratory, fault: Fault) -> bool:
    """Return True where the fault, planted in the same kernel run in float64, gives the exact values.

    "Exact" is to within the uncertainty of the float64 values themselves: 2^-26 of the bound, or 2^-45 of the largest
    value of the tensor, which is what float64 sums of up to 2^8 terms of its size leave open.
    """
    wide = {
        n: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in laboratory.inputs.items()
    }
    try:
        twin = object.__new__(Laboratory)
        twin.function, twin.inputs = laboratory.function, wide
        twin.check = prepared(laboratory.function, wide, reference=laboratory.check.reference, wrt=laboratory.check.wrt)
        twin.arguments = twin.check.arguments
        twin.upstream = [grad.double() for grad in laboratory.upstream]
        with Steps(fault):
            found = twin.run()
    except (KernelRaisedError, RuntimeError, TypeError):
        return False
    return all(_near(laboratory.results[name], value) for name, value in found.items() if name in laboratory.results)


def _near(result: Result, value: Tensor | None) -> bool:
    mid = result.enclosure.mid
    value = torch.zeros_like(mid) if value is None else value
    if not value.is_floating_point():
        return bool((value == mid).all())
    known = mid.isfinite()
    scale = mid[known].abs().max() if bool(known.any()) else mid.new_zeros(())
    gap = (value.double() - mid).abs()
    return bool((gap <= result.rad_abs() + 2.0**-45 * scale)[known].all())
