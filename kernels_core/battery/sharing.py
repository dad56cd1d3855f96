"""Tensors that are not the backward's own: an upstream gradient that a second branch reads as well."""

from __future__ import annotations

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement, same_bits
from kernels_core.battery.subject import Subject
from kernels_core.kernel import phase

Tensor = torch.Tensor


def addable(subject: Subject) -> bool:
    """Return True where PyTorch adds tensors of the outputs' dtypes (it has no sum of 8-bit floats)."""
    try:
        return all((torch.zeros(1, dtype=g.dtype) + torch.zeros(1, dtype=g.dtype)).dtype for g in subject.upstream)
    except (RuntimeError, NotImplementedError):
        return False


def _shared_grad_output(subject: Subject) -> Finding:
    """Add a bystander to every output: its gradient is the very tensor that the backward under test is given."""
    if not subject.wrt or not subject.upstream or not addable(subject):
        return not_applicable("no gradient that a second branch could share")
    judgement = Judgement(subject)
    with judgement.trying("a second branch"):
        leaves = subject.leaves()
        outputs = subject.forward(leaves)
        names = [n for n in subject.check.cotangents if n in outputs and outputs[n].requires_grad]
        upstream = dict(zip(subject.check.cotangents, subject.grad_outputs(), strict=True))
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


ITEMS = (
    Item("shared_grad_output", "a second branch that reads the same upstream gradient sees it unchanged",
         _shared_grad_output),
)  # fmt: skip
