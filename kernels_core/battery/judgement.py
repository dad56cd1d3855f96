"""What the runs of one item showed, judged by the same certified intervals as the plain comparison.

An element counts against an item where the plain comparison did not count it already, so that a fault that shows at
once is not told again by every item. Where other values have intervals of their own, so does a tensor as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch

from kernels_core.battery.item import Finding
from kernels_core.battery.subject import Subject
from kernels_core.coverage import Element
from kernels_core.eight_bits import widened
from kernels_core.kernel.call import KernelRaisedError
from kernels_core.reference import Result
from kernels_core.report import Outcome
from kernels_core.tracing.complex_parts import parts_of, returned_apart

Tensor = torch.Tensor


class Judgement:
    """Collects what went wrong, run by run, and sums it up in one finding."""

    def __init__(self, subject: Subject) -> None:
        """Judge the kernel of `subject`."""
        self.subject = subject
        self.faults: list[str] = []
        self.doubts: list[str] = []
        self.refusals: list[str] = []
        self.remarks: list[str] = []
        self.done: list[str] = []

    @contextlib.contextmanager
    def trying(self, label: str, *, may_refuse: bool = False) -> Iterator[None]:
        """Run the kernel in the way that `label` says; a kernel that raises fails, or has refused where it may."""
        try:
            yield
        except KernelRaisedError as error:
            text = f"{label}: {error.raised.phase} raised {one_line(error.raised.message)}"
            (self.refusals if may_refuse else self.faults).append(text)
        else:
            self.done.append(label)

    def look(
        self,
        label: str,
        found: Mapping[str, Tensor | None],
        results: Mapping[str, Result] | None = None,
        *,
        doubts: bool = True,
    ) -> None:
        """Judge outputs and gradients by name; None for a gradient stands for zero.

        Args:
            label: how the kernel was run.
            found: what it returned.
            results: what it may return; what the plain comparison admitted where left out.
            doubts: undecided elements count; not where the values are not those that the caller asked about.
        """
        before, known = len(self.doubts), self.subject.results if results is None else results
        for name, actual in returned_apart(found, known).items():
            result = known.get(name)
            if result is not None and (results is None or name not in self.subject.violated):
                self._look_at(label, result, actual, self._first(name, result) if results is None else None)
        if not doubts:
            del self.doubts[before:]

    def _first(self, name: str, result: Result) -> Tensor | None:
        """Return what the plain comparison found; a gradient that was None there is not counted again as None."""
        missing = name in self.subject.gradients and self.subject.gradients[name] is None
        return _zeros(result) if missing else self.subject.plain(name)

    def _look_at(self, label: str, result: Result, actual: Tensor | None, before: Tensor | None) -> None:
        value = _zeros(result) if actual is None else actual.detach()
        if (tuple(value.shape), value.dtype) != (result.meta.shape, result.meta.dtype):
            wanted = f"{_form(result.meta.dtype, result.meta.shape)}"
            self.faults.append(f"{label}: {result.name} is {_form(value.dtype, value.shape)}, not {wanted}")
            return
        if before is not None and same_bits(value, before):
            return
        codes = result.verdict(value)
        if all_covered(codes):
            return
        known = result.verdict(before) if before is not None and _fits(before, result) else None
        for element, texts in ((Element.VIOLATED, self.faults), (Element.UNDECIDED, self.doubts)):
            new = (codes == element) if known is None else (codes == element) & (known != element)
            if bool(new.any()):
                missing = " (None returned)" if actual is None else ""
                texts.append(f"{label}: {_count(new)} of {result.name} {element.name.lower()}{missing}, "
                             f"{_example(result, value, new)}")  # fmt: skip

    def fault(self, text: str) -> None:
        """Record what breaks the contract without being a wrong value."""
        self.faults.append(text)

    def remark(self, text: str) -> None:
        """Record what is no fault."""
        self.remarks.append(text)

    def finding(self, passed: str, *, noted: bool = False) -> Finding:
        """Return the worst that was seen; `passed` says what was run where nothing was."""
        for outcome, texts in (
            (Outcome.FAIL, self.faults),
            (Outcome.UNDECIDED, self.doubts),
            (Outcome.REFUSED, self.refusals),
            (Outcome.NOTED, self.remarks),
        ):
            if texts:
                more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
                return Finding(outcome, texts[0] + more)
        return Finding(Outcome.NOTED if noted else Outcome.PASS, passed)


def all_covered(codes: Tensor) -> bool:
    """Return True where every code is COVERED, the smallest."""
    return not codes.numel() or int(codes.max()) == Element.COVERED


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Return True where two tensors have the same shape, dtype and bits."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.is_complex():  # in parts: PyTorch compares no complex32
        return all(same_bits(a, b) for a, b in zip(parts_of(first), parts_of(second), strict=True))
    first, second = widened(first), widened(second)
    if torch.equal(first, second):  # equal values; -0.0 and 0.0 are the same value
        return True
    if not first.dtype.is_floating_point or not bool((nan := first.isnan()).any()):
        return False
    return torch.equal(first[~nan], second[~nan]) and bool(second[nan].isnan().all())


def one_line(text: str) -> str:
    """Return the first line of a message, shortened."""
    line = (text.strip().splitlines() or [""])[0]
    return line if len(line) <= 120 else line[:117] + "..."


def _zeros(result: Result) -> Tensor:
    return torch.zeros(result.meta.shape, dtype=result.meta.dtype, device=result.enclosure.mid.device)


def _fits(tensor: Tensor, result: Result) -> bool:
    return (tuple(tensor.shape), tensor.dtype) == (result.meta.shape, result.meta.dtype)


def _form(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def _count(found: Tensor) -> str:
    return f"{int(found.sum())} of {found.numel()} elements"


def _example(result: Result, value: Tensor, found: Tensor) -> str:
    index = tuple(int(i) for i in torch.nonzero(found)[0]) if found.dim() else ()
    low, high = result.lower[index].item(), result.upper[index].item()
    return f"{list(index)} is {value[index].item():.9g}, not in [{low:.9g}, {high:.9g}]"
