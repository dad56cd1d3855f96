"""Memory that several tensors share: an upstream gradient that a second branch reads, gradients that are one memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement, same_bits
from kernels_core.battery.subject import Subject
from kernels_core.kernel.call import KernelRaisedError, phase, run_forward

Tensor = torch.Tensor


class Returned(NamedTuple):
    """The tensors of one call by name: what it was given and what it returned, outputs with their graph."""

    leaves: Mapping[str, Tensor]
    upstream: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None]


def returned(subject: Subject) -> Returned:
    """Call the kernel forward and backward."""
    leaves, upstream = subject.leaves(), dict(zip(subject.check.cotangents, subject.grad_outputs(), strict=True))
    outputs = subject.forward(leaves)
    return Returned(leaves, upstream, outputs, subject.backward(outputs, leaves, list(upstream.values())))


def addable(tensors: Iterable[Tensor]) -> bool:
    """Return True where PyTorch adds tensors of these dtypes (it has no sum of 8-bit floats)."""
    try:
        return all((torch.zeros(1, dtype=t.dtype) + torch.zeros(1, dtype=t.dtype)).dtype for t in tensors)
    except (RuntimeError, NotImplementedError):
        return False


def _shared_grad_output(subject: Subject) -> Finding:
    """Add a bystander to every output: its gradient is the very tensor that the backward under test is given."""
    if not subject.wrt or not subject.upstream or not addable(subject.upstream):
        return not_applicable("no gradient that a second branch could share")
    judgement = Judgement(subject)
    with judgement.trying("a second branch"):
        leaves = subject.leaves()
        outputs = subject.forward(leaves)
        names = [n for n in subject.check.cotangents if n in outputs and outputs[n].requires_grad]
        upstream = dict(zip(subject.check.cotangents, subject.grad_outputs(), strict=True))
        upstream = {name: upstream[name].to(outputs[name].dtype) for name in names}
        given = {name: upstream[name].clone() for name in names}
        bystanders = [torch.zeros_like(outputs[name]).requires_grad_() for name in names]
        sums = [outputs[name] + other for name, other in zip(names, bystanders, strict=True)]
        with phase("backward"):
            found = torch.autograd.grad(
                sums, [*(leaves[n] for n in subject.wrt), *bystanders], list(given.values()), allow_unused=True
            )
        judgement.look("a second branch", dict(zip((f"grad_{n}" for n in subject.wrt), found, strict=False)))
        for name, seen in zip(names, found[len(subject.wrt) :], strict=True):
            if seen is None or not same_bits(seen, upstream[name]):
                judgement.fault(f"the second branch of {name} got another gradient: {_changed(seen, upstream[name])}")
    return judgement.finding("a second branch got the same upstream gradient")


def _changed(seen: Tensor | None, given: Tensor) -> str:
    if seen is None or seen.shape != given.shape:
        return "none of its shape"
    where = torch.nonzero((seen != given) & ~(seen.isnan() & given.isnan()))
    index = tuple(int(i) for i in where[0])
    values = f"{list(index)} is {seen[index].item():.9g}, not {given[index].item():.9g}"
    return f"{len(where)} of {given.numel()} elements were overwritten, {values}"


def _aliasing(subject: Subject) -> Finding:
    """Accumulate two backwards in `.grad`, and name what shares memory.

    The engine keeps a returned gradient as `.grad` without a copy where nothing else refers to the *tensor*; it does
    not look at the memory. Two views of one memory become the `.grad` of two inputs, and the next backward adds to both
    twice. A tensor that is returned twice, or passed on, is copied: that is no fault.
    Source: torch/csrc/autograd/functions/accumulate_grad.h, "stealable".
    """
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    judgement = Judgement(subject)
    for text in _shared_memory(subject.once("returned", returned)):
        judgement.remark(text)
    if addable(subject.check.tensors[name] for name in subject.wrt):
        with judgement.trying("two backwards accumulated"):
            judgement.look("two backwards accumulated in .grad, halved", _accumulated(subject))
    return judgement.finding("no gradient shares memory with another tensor")


def _accumulated(subject: Subject) -> dict[str, Tensor | None]:
    """Return half of what two backwards leave in `.grad`.

    The sum of two legal values, rounded, lies between twice the smallest and twice the largest legal value, and
    halving it is exact, or rounds to a value between the two where it is subnormal. Sums that overflow are left as in
    the plain comparison. Both calls are given the same values: a kernel that works in place has written to them.
    """
    leaves = subject.leaves()
    for _ in range(2):
        _put_back(subject, leaves)
        outputs = _from_leaves(subject, leaves)
        pairs = list(zip((outputs[n] for n in subject.check.cotangents), subject.grad_outputs(), strict=True))
        pairs = [(t, g) for t, g in pairs if t.requires_grad]
        with phase("backward"):
            wanted = [leaves[name] for name in subject.wrt]
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs], inputs=wanted)
    found: dict[str, Tensor | None] = {}
    for name in subject.wrt:
        total, once = leaves[name].grad, subject.gradients[f"grad_{name}"]
        found[f"grad_{name}"] = total if total is None else _half(total, once)
    return found


def _from_leaves(subject: Subject, leaves: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the outputs of the kernel given the leaves themselves, whose `.grad` it sees; it may refuse them.

    Autograd lets no Function write to a leaf: one that works in place is given what follows the leaf instead.
    """
    try:
        return run_forward(subject.function, subject.inputs, subject.arguments, leaves, as_given=True)
    except KernelRaisedError:
        _put_back(subject, leaves)  # it has written before autograd looked
        return subject.forward(leaves)


def _put_back(subject: Subject, leaves: Mapping[str, Tensor]) -> None:
    """Give the inputs their values again."""
    for name, leaf in leaves.items():
        leaf.detach().copy_(subject.check.tensors[name])


def _half(total: Tensor, once: Tensor | None) -> Tensor:
    half = total / 2
    return half if once is None else torch.where(total.isinf() & once.isfinite(), once, half)


def _shared_memory(call: Returned) -> Iterator[str]:
    found = {name: t for name, t in call.gradients.items() if t is not None}
    others = {**call.leaves, **call.outputs, **{f"grad_{n}": g for n, g in call.upstream.items()}}
    for (first, a), (second, b) in itertools.combinations(found.items(), 2):
        if _same_memory(a, b):
            yield f"{first} and {second} share memory"
    for (first, a), (second, b) in itertools.product(found.items(), others.items()):
        if _same_memory(a, b):
            yield f"{first} shares memory with {second}"
    for (first, a), (second, b) in itertools.product(call.outputs.items(), call.leaves.items()):
        if _same_memory(a, b):
            yield f"{first} shares memory with the input {second}"


def _same_memory(first: Tensor, second: Tensor) -> bool:
    if first._is_zerotensor() or second._is_zerotensor():  # has no memory
        return False
    place = first.untyped_storage().data_ptr()
    return place != 0 and place == second.untyped_storage().data_ptr()


ITEMS = (
    Item("shared_grad_output", "a second branch that reads the same upstream gradient sees it unchanged",
         _shared_grad_output),
    Item("aliasing", "gradients that share memory do not corrupt each other when they are accumulated", _aliasing),
)  # fmt: skip
