"""How a kernel is judged on values that nobody chose: strictly, but for what no kernel can be held to.

Not judged are elements where the reference has no value (a logarithm of a negative number), and everything where
PyTorch, running the reference itself in the same dtype, leaves the intervals: its own order of operations overflows.

An interval grants the roundings of the reference's algorithm and no others. On a large offset, on zeros or on ones it
may hold that algorithm alone: not a gradient recomputed from a rounded output, nor a recurrence cut into blocks. So
what lies outside fails where it would also lie outside if every input were rounded once more to its own format: then
it is off by more than the exact answer to inputs as good as those that were given, and so does NaN in place of a
number. What such a rounding explains is noted, and fails where the family was asked for by name.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels_core.battery.item import Finding
from kernels_core.battery.judgement import Judgement, all_covered, one_line
from kernels_core.battery.natively import outside, run_reference
from kernels_core.battery.subject import Subject
from kernels_core.coverage import Element
from kernels_core.enclosure import Enclosure
from kernels_core.errors import ExactRefError, UsageError
from kernels_core.kernel.call import KernelRaisedError, run_kernel
from kernels_core.reference import Check, Result
from kernels_core.tracing.complex_parts import returned_apart

Tensor = torch.Tensor
Results = Mapping[str, Result]
Found = Mapping[str, Tensor | None]


class Extremes:
    """Judges a kernel on other values, and counts what was decided."""

    def __init__(self, subject: Subject, *, certain: bool = True) -> None:
        """Judge the kernel of `subject`; where the values may not be legal inputs (not `certain`), faults are noted."""
        self.subject, self.certain = subject, certain
        self.judgement = Judgement(subject)
        self.left_out: list[str] = []  # why whole draws were not judged
        self.total = self.undecided = self.without_value = 0

    def look(self, label: str, changed: Mapping[str, Tensor]) -> None:
        """Run the kernel with these inputs in place of its own, by the reference's names."""
        subject = self.subject
        try:
            check = subject.check_at(changed)
            if [m.shape for m in check.cotangents.values()] != [tuple(g.shape) for g in subject.upstream]:
                self.left_out.append("outputs have other shapes with these values")
                return
            outputs, gradients = self._run(check)
            results = _where_defined(check.outputs() if gradients is None else check.both(subject.upstream))
        except ExactRefError as error:
            self.left_out.append(str(error).splitlines()[0])
            return
        except KernelRaisedError as error:
            if self.certain:
                raise
            self.left_out.append(f"{error.raised.phase} raised {one_line(error.raised.message)}")
            return
        found = returned_apart({**outputs, **(gradients or {})}, results)
        codes = _codes(found, results)
        suspects = {name: found[name] for name in found if _needs_a_look(codes.get(name))}
        if suspects and (why := _too_much_for_pytorch(subject, check, results)):
            self.left_out.append(why)
            return
        self._judge(label, suspects, results, functools.partial(_rounded, check, subject.upstream))
        self._count(codes, results)

    def _run(self, check: Check) -> tuple[Found, Found | None]:
        """Return what the kernel returns; it may raise where PyTorch, running the reference, raises too.

        Raises:
            UsageError: both raise.
            KernelRaisedError: the kernel alone does.
        """
        subject = self.subject
        try:
            return run_kernel(subject.function, subject.inputs, check.arguments, check, subject.upstream)
        except KernelRaisedError as error:
            try:
                run_reference(check, subject.upstream)
            except KernelRaisedError as other:
                raise UsageError(f"the reference raises too: {one_line(other.raised.message)}") from error
            raise

    def _judge(self, label: str, found: Found, results: Results, rounded: Callable[[], Results]) -> None:
        wider: Results | None = None
        for name, actual in found.items():
            strict = Judgement(self.subject)
            strict.look(label, {name: actual}, results, doubts=False)
            if not strict.faults or self.subject.settings.insist or _nan_for_a_number(results.get(name), actual):
                self.judgement.faults += strict.faults
                continue
            wider = rounded() if wider is None else wider
            loose = Judgement(self.subject)
            loose.look(label, {name: actual}, wider, doubts=False)
            explained = [f"{text}: no more than rounding the inputs once more explains" for text in strict.faults]
            self.judgement.faults += strict.faults if loose.faults else []
            self.judgement.remarks += [] if loose.faults else explained

    def _count(self, codes: Mapping[str, Tensor], results: Results) -> None:
        for name, found in codes.items():
            self.total += found.numel()
            if not all_covered(found):
                open_ = (found == Element.UNDECIDED) | (found == Element.UNCONSTRAINED)
                nowhere = _nowhere(results[name])
                self.without_value += int((open_ & nowhere).sum())
                self.undecided += int((open_ & ~nowhere).sum())

    def finding(self) -> Finding:
        """Return what was seen; it passes where all that the reference has a value for was decided."""
        if not self.certain:
            self.judgement.remarks[:0] = self.judgement.faults
            self.judgement.faults.clear()
        if self.left_out and not self.total:
            self.judgement.remarks.append(f"not judged: {self.left_out[0]}")
            return self.judgement.finding("")
        covered = self.total - self.undecided - self.without_value
        rest = [f"{self.without_value} without a value"] * bool(self.without_value)
        rest += [f"{self.undecided} not decided"] * bool(self.undecided)
        text = f"{covered} of {self.total} elements covered, {', '.join(rest)}" if rest else f"{self.total} elements"
        text += f"; a draw not judged: {self.left_out[0]}" if self.left_out else ""
        return self.judgement.finding(text, noted=bool(self.undecided) or 2 * covered < self.total)


def _rounded(check: Check, upstream: Any) -> Results:
    return _where_defined(check.both(upstream, rounded_inputs=True))


def _nowhere(result: Result) -> Tensor:
    """Return True where the result is NaN, and nothing is asked of it."""
    mid, bound = result.enclosure.mid, result.enclosure.bound_or_zero()
    return (mid.isnan() & bound.isinf().expand(mid.shape)).cpu()


def _where_defined(results: Results) -> dict[str, Result]:
    """Return results that ask nothing of elements where an output is NaN, and of gradients that go with them."""
    outputs = [r.enclosure.mid for n, r in results.items() if not n.startswith("grad_") and r.enclosure.floating]
    missing = [mid.isnan() for mid in outputs if bool(mid.isnan().any())]
    return {n: _without(r, missing) if missing else r for n, r in results.items()}


def _without(result: Result, missing: list[Tensor]) -> Result:
    if not result.enclosure.floating:
        return result
    mid = result.enclosure.mid
    nowhere = mid.isnan()
    for other in missing:
        same = other.shape == mid.shape
        nowhere = nowhere | (other if same else torch.tensor(result.name.startswith("grad_"), device=mid.device))
    mid, bound = torch.where(nowhere, torch.nan, mid), result.enclosure.bound_or_zero().expand(mid.shape)
    return dataclasses.replace(
        result, enclosure=Enclosure(mid, torch.where(nowhere, torch.inf, bound)), kinks=None, at_nan=None
    )


def _nan_for_a_number(result: Result | None, actual: Tensor | None) -> bool:
    """Return True where NaN stands for a finite interval, which PyTorch's own result keeps: no rounding explains it."""
    if result is None or actual is None or not result.enclosure.floating or actual.shape != result.meta.shape:
        return False
    mid, bound = result.enclosure.mid, result.enclosure.bound_or_zero()
    return bool((actual.isnan().to(mid.device) & mid.isfinite() & bound.isfinite()).any())


def _codes(found: Found, results: Results) -> dict[str, Tensor]:
    """Return the decision on every tensor that has the form of its result."""
    return {
        name: results[name].verdict(actual)
        for name, actual in found.items()
        if actual is not None and name in results and (tuple(actual.shape), actual.dtype) == tuple(results[name].meta)
    }


def _needs_a_look(codes: Tensor | None) -> bool:
    """Return True for a tensor of another form, for None, and where an element is outside."""
    return codes is None or (not all_covered(codes) and bool((codes == Element.VIOLATED).any()))


def _too_much_for_pytorch(subject: Subject, check: Check, results: Results) -> str:
    """Return why a correct kernel cannot be held to these intervals, "" where it can."""
    try:
        name = outside(check, subject.upstream, results)
    except KernelRaisedError as error:
        return f"the reference raises: {one_line(error.raised.message)}"
    return f"PyTorch on the reference itself leaves the intervals of {name}" if name else ""
