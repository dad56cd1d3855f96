"""Memory that is not the kernel's own: what lies around its tensors, and what was never written.

A kernel that writes one element too far changes a canary; one that reads too far, or returns what it never wrote, meets
NaN in one run and a large number in the other. Allocations are seen where they go through PyTorch's dispatcher
(`torch.empty`, `empty_like`, `new_empty`, `empty_strided`), in Python and in C++ alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_core.battery.item import Finding, Item
from kernels_core.battery.judgement import Judgement, same_bits
from kernels_core.battery.subject import Subject
from kernels_core.kernel.call import KernelRaisedError
from kernels_core.tracing.complex_parts import differentiable

Tensor = torch.Tensor
WIDTH = 64  # elements of a canary on either side, a multiple of any alignment that kernels ask for

_ALLOCATIONS = frozenset({
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
})  # fmt: skip


def poison(dtype: torch.dtype, *, large: bool) -> float:
    """Return what unwritten memory is filled with: NaN or a large number; small for integers, which may be indices."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.finfo(dtype).max / 4 if large else float("nan")
    return float(large) if dtype == torch.bool else 2 + float(large)


class Guarded:
    """Tensors between canaries."""

    def __init__(self, *, large: bool) -> None:
        """Fill canaries with NaN, or with a large number."""
        self.large = large
        self.kept: list[tuple[str, Tensor, Tensor]] = []  # name, canary, its values

    def around(self, given: Tensor, name: str) -> Tensor:
        """Return the values of a contiguous tensor between two canaries."""
        memory = given.new_empty(given.numel() + 2 * WIDTH).fill_(poison(given.dtype, large=self.large))
        for side, canary in (("before", memory[:WIDTH]), ("behind", memory[-WIDTH:])):
            self.kept.append((f"the memory {side} {name}", canary, canary.clone()))
        return memory[WIDTH : WIDTH + given.numel()].view(given.shape).copy_(given)

    def in_front_of(self, given: Tensor, name: str) -> Tensor:
        """Return unwritten memory like a contiguous tensor, a canary behind it.

        None before it: PyTorch's own derivative of a write to a slice takes new memory to begin where its storage does.
        """
        memory = given.new_empty(given.numel() + WIDTH).fill_(poison(given.dtype, large=self.large))
        canary = memory[given.numel() :]
        self.kept.append((f"the memory behind {name}", canary, canary.clone()))
        return memory[: given.numel()].view(given.shape)

    def overrun(self) -> list[str]:
        """Return which canaries changed."""
        return [f"{name} is written to" for name, canary, before in self.kept if not same_bits(canary, before)]


class Allocations(TorchDispatchMode):
    """Fills every new tensor of unwritten elements with poison."""

    def __init__(self, *, large: bool, guarded: Guarded | None = None) -> None:
        """Fill with NaN or large numbers, and put a canary behind contiguous tensors where `guarded` is given."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.large, self.guarded = large, guarded

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then replace what it allocated."""
        result = func(*args, **(kwargs or {}))
        if func not in _ALLOCATIONS or type(result) is not torch.Tensor or result.is_quantized:
            return result
        result.fill_(poison(result.dtype, large=self.large))
        contiguous = result.layout == torch.strided and result.is_contiguous() and result.device.type != "meta"
        return self.guarded.in_front_of(result, "an allocation") if self.guarded and contiguous else result


class _Run(NamedTuple):
    """A run in poisoned memory: what the kernel returned, or why it raised; and the canaries that changed."""

    label: str
    found: Mapping[str, Tensor | None]
    raised: KernelRaisedError | None
    overrun: list[str]


def _runs(subject: Subject) -> list[_Run]:
    """Run the kernel twice, its tensors and allocations between canaries, new memory filled with what they are."""
    return [_guarded_run(subject, large, fill) for large, fill in ((False, "NaN"), (True, "a large number"))]


def _guarded_run(subject: Subject, large: bool, fill: str) -> _Run:
    guarded = Guarded(large=large)
    leaves = {
        name: guarded.around(leaf.detach().contiguous(), f"input {name}").requires_grad_(leaf.requires_grad)
        for name, leaf in subject.leaves().items()
    }
    names = list(subject.check.cotangents)
    upstream = [guarded.around(g, f"grad_{n}") for n, g in zip(names, subject.grad_outputs(), strict=True)]
    try:
        with Allocations(large=large, guarded=guarded):
            return _Run(fill, subject.run(leaves, upstream), None, guarded.overrun())
    except KernelRaisedError as error:
        return _Run(fill, {}, error, [])


def _canaries(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    for run in subject.once("guarded", _runs):
        label = f"canaries of {run.label}"
        with judgement.trying(label, may_refuse=True):
            if run.raised is not None:
                raise run.raised
            judgement.look(label, run.found)
            for text in run.overrun:
                judgement.fault(text)
    return judgement.finding("nothing around inputs, upstream gradients and allocations is read or written")


def _unwritten(subject: Subject) -> Finding:
    """Judge the runs between canaries; where something is wrong, runs where nothing but new memory is poisoned."""
    judgement = Judgement(subject)
    guarded = [(run.label, run.found) for run in subject.once("guarded", _runs) if run.raised is None]
    _look_at_memory(judgement, guarded)
    if len(guarded) < 2 or judgement.faults or judgement.doubts:
        judgement = Judgement(subject)
        _look_at_memory(judgement, _unguarded_runs(subject, judgement))
    return judgement.finding("every element of every output and gradient is written")


def _look_at_memory(judgement: Judgement, runs: Sequence[tuple[str, Mapping[str, Tensor | None]]]) -> None:
    if len(runs) == 2:
        (_, first), (_, second) = runs
        for name in first:
            _look_for_poison(judgement, name, first[name], second.get(name))
        if not judgement.faults:
            for label, found in runs:
                judgement.look(label, found)


def _unguarded_runs(subject: Subject, judgement: Judgement) -> list[tuple[str, Mapping[str, Tensor | None]]]:
    """Return the runs that do not raise."""
    runs: list[tuple[str, Mapping[str, Tensor | None]]] = []
    for large, label in ((False, "new memory of NaN"), (True, "new memory of a large number")):
        with judgement.trying(label, may_refuse=True), Allocations(large=large):
            runs.append((label, subject.run()))
    return runs


def _look_for_poison(judgement: Judgement, name: str, first: Tensor | None, second: Tensor | None) -> None:
    if first is None or second is None or first.shape != second.shape:
        return
    marks = [poison(t.dtype, large=large) for t, large in ((first, False), (second, True))]
    floating = differentiable(first.dtype)
    left = (first.isnan() if floating else first == marks[0]) & (second == torch.tensor(marks[1]).to(second))
    if bool(left.any()):
        index = [int(i) for i in torch.nonzero(left)[0]]
        judgement.fault(f"{int(left.sum())} of {left.numel()} elements of {name} are unwritten, the first is {index}")


ITEMS = (
    Item("canaries", "the memory around inputs, upstream gradients and allocations is neither read nor written",
         _canaries),
    Item("unwritten", "every element of outputs and gradients is written, whatever new memory holds", _unwritten),
)  # fmt: skip
