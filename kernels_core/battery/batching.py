"""Batches by `torch.func.vmap`: each sample's outputs and gradients, from a Function's own rule or the generated one.

Two samples are run as one batch: the inputs themselves, and the same values in another place. The batch lies along the
first dimension, along the last, and along that of one input alone, the others being shared by both samples: a rule
must take every such `in_dims`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Mapping

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement, one_line
from kernels_core.battery.subject import Subject
from kernels_core.kernel.call import KernelRaisedError, phase
from kernels_core.kernel.callee import call, function_class
from kernels_core.reference import Check, Result
from kernels_core.tracing import trace as tracing

Tensor = torch.Tensor
MOST = 3  # inputs that are batched alone


@dataclasses.dataclass(frozen=True)
class _Batch:
    """Which inputs differ between the two samples, and where the batch lies in them."""

    label: str
    names: tuple[str, ...]
    dim: int


def _batches(subject: Subject) -> Iterator[_Batch]:
    names = tuple(subject.wrt)
    yield _Batch("batch in front", names, 0)
    if all(subject.check.tensors[name].dim() for name in names):
        yield _Batch("batch in the last dimension", names, -1)
    if len(names) > 1:
        for name in names[:MOST]:
            yield _Batch(f"only {name} has a batch", (name,), 0)


def _rule(subject: Subject) -> str:
    """Return "generated" or "own" for a Function that has a rule, else nothing."""
    function = function_class(subject.function)
    if function is None:
        return ""
    if function.vmap is not torch.autograd.Function.vmap:
        return "own"
    return "generated" if function.generate_vmap_rule else ""


def _vmap(subject: Subject) -> Finding:
    rule = _rule(subject)
    if not rule or not subject.wrt or not subject.upstream:
        return not_applicable("no Function with a vmap rule" if not rule else "nothing is differentiated")
    judgement = Judgement(subject)
    for batch in _batches(subject):
        results = _other_results(subject, batch)
        with judgement.trying(batch.label), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operations that PyTorch runs sample by sample
            _look(judgement, batch, _outputs(subject, batch), results)
        with _gradients(judgement, batch, rule):
            _look(judgement, batch, _batched_gradients(subject, batch), results)
    return judgement.finding(", ".join(judgement.done))


@contextlib.contextmanager
def _gradients(judgement: Judgement, batch: _Batch, rule: str) -> Iterator[None]:
    """Let gradients raise where the Function has a rule of its own: its backward need not have one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except KernelRaisedError as error:
        text = f"gradients, {batch.label}: raised {one_line(error.raised.message)}"
        (judgement.fault if rule == "generated" else judgement.remark)(text)


def _look(judgement: Judgement, batch: _Batch, found: Mapping[str, Tensor | None], other: Mapping[str, Result]) -> None:
    first = {name: None if t is None else t[0] for name, t in found.items()}
    second = {name: None if t is None else t[1] for name, t in found.items()}
    judgement.look(f"{batch.label}, first sample", first)
    judgement.look(f"{batch.label}, second sample", second, other, doubts=False)


def _moved(subject: Subject, batch: _Batch) -> dict[str, Tensor]:
    """Return the second sample's inputs that differ: the same values, each in the next place."""
    return {n: subject.check.tensors[n].detach().reshape(-1).roll(1).reshape(subject.check.tensors[n].shape)
            for n in batch.names}  # fmt: skip


def _other_results(subject: Subject, batch: _Batch) -> Mapping[str, Result]:
    check = subject.check
    arguments = tracing.with_tensors(subject.arguments, {**check.tensors, **_moved(subject, batch)})
    other = Check(check.reference, arguments, profile=check.profile, wrt=check.wrt, kinks=check.kinks)
    return other.both(list(subject.upstream))


def _stacked(subject: Subject, batch: _Batch) -> list[Tensor]:
    moved = _moved(subject, batch)
    return [torch.stack([subject.check.tensors[n].detach(), moved[n]], batch.dim) for n in batch.names]


def _call(subject: Subject, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the floating outputs by name; not through `phase`, which vmap itself needs around it."""
    names, outputs = tracing.output_names(
        call(subject.function, subject.inputs, tracing.with_tensors(subject.arguments, leaves))
    )
    return {name: t for name, t in zip(names, outputs, strict=True) if name in subject.check.cotangents}


def _outputs(subject: Subject, batch: _Batch) -> dict[str, Tensor | None]:
    leaves = subject.leaves(())

    def sample(*values: Tensor) -> dict[str, Tensor]:
        return _call(subject, {**leaves, **dict(zip(batch.names, values, strict=True))})

    with phase("vmap"):
        return dict(torch.func.vmap(sample, in_dims=batch.dim)(*_stacked(subject, batch)))


def _batched_gradients(subject: Subject, batch: _Batch) -> dict[str, Tensor | None]:
    leaves, names = subject.leaves(()), list(subject.wrt)

    def sample(*values: Tensor) -> tuple[Tensor, ...]:
        within = {**leaves, **dict(zip(batch.names, values, strict=True))}

        def primal(*chosen: Tensor) -> tuple[Tensor, ...]:
            return tuple(_call(subject, {**within, **dict(zip(names, chosen, strict=True))}).values())

        pullback = torch.func.vjp(primal, *(within[name] for name in names))[1]
        return tuple(pullback(tuple(subject.grad_outputs())))

    with phase("vmap"):
        found = torch.func.vmap(sample, in_dims=batch.dim)(*_stacked(subject, batch))
    return {f"grad_{name}": grad for name, grad in zip(names, found, strict=True)}


ITEMS = (Item("vmap", "torch.func.vmap of a Function with a rule: each sample as if alone", _vmap),)
