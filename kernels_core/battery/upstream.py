"""Upstream gradients that are missing, zero, or given to one output alone.

A backward is called with None (or zeros, where it lets PyTorch materialise them) for outputs that the loss does not
reach. The gradient is linear in the upstream gradients: none at all means zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.subject import Subject
from kernels_core.coverage import Element
from kernels_core.reference import Result
from kernels_core.tracing.complex_parts import returned_apart

Tensor = torch.Tensor
MOST = 6  # outputs that are taken alone


def _alone(subject: Subject) -> Iterator[tuple[str, int, Mapping[str, Result]]]:
    """Yield each output with its place and what the gradients may be where it alone has an upstream gradient."""
    for place, name in enumerate(list(subject.check.cotangents)[:MOST]):
        zeros = [g if i == place else torch.zeros_like(g) for i, g in enumerate(subject.upstream)]
        yield name, place, subject.results_for(f"only {name}", zeros)


def _left_out(subject: Subject) -> str:
    more = len(subject.upstream) - MOST
    return f", {more} left out for cost" if more > 0 else ""


def _each_output_alone(subject: Subject) -> Finding:
    if len(subject.upstream) < 2 or not subject.wrt:
        return not_applicable("there is one output" if subject.wrt else "nothing is differentiated")
    judgement = Judgement(subject)
    for name, place, results in _alone(subject):
        given = [g if i == place else torch.zeros_like(g) for i, g in enumerate(subject.grad_outputs())]
        with judgement.trying(f"only {name}"):
            judgement.look(f"only {name}", subject.run(upstream=given), results)
    return judgement.finding(f"{len(judgement.done)} outputs, zeros for the others{_left_out(subject)}")


def _undefined_grad_output(subject: Subject) -> Finding:
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    judgement = Judgement(subject)
    if len(subject.upstream) > 1:
        for name, place, results in _alone(subject):
            given = [g if i == place else None for i, g in enumerate(subject.grad_outputs())]
            with judgement.trying(f"only {name} defined"):
                judgement.look(f"only {name} defined", subject.run(upstream=given), results)
    with judgement.trying("none defined"):
        _require_zero(judgement, "none defined", _all_undefined(subject))
    return judgement.finding(", ".join(judgement.done) + _left_out(subject))


def _all_undefined(subject: Subject) -> dict[str, Tensor | None]:
    """Return the gradients where nothing that follows an output has a gradient for it."""
    leaves = subject.leaves()
    outputs = subject.forward(leaves)
    followers = {n: _cut(t) if n in subject.check.cotangents and t.requires_grad else t for n, t in outputs.items()}
    return subject.backward(followers, leaves)


def _cut(tensor: Tensor) -> Tensor:
    """Return the tensor, with a step behind it that hands an undefined gradient to whatever made it."""
    followed: Any = torch._C._functions.UndefinedGrad()(tensor)
    return followed  # type: ignore[no-any-return]


def _zero_grad_output(subject: Subject) -> Finding:
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    judgement = Judgement(subject)
    with judgement.trying("zeros"):
        zeros = [torch.zeros_like(g) for g in subject.upstream]
        leaves = subject.leaves()
        _require_zero(judgement, "zeros", subject.backward(subject.forward(leaves), leaves, zeros))
    return judgement.finding("zero upstream gradients give zero gradients")


def _require_zero(judgement: Judgement, label: str, found: Mapping[str, Tensor | None]) -> None:
    """Fail elements that are not zero and that the reference, given zeros, does not return either (0 * inf is NaN)."""
    subject = judgement.subject
    for name, actual in returned_apart(found, subject.results).items():
        if actual is None or name in subject.violated or bool((actual == 0).all()):
            continue
        results = subject.results_for("zeros", [torch.zeros_like(g) for g in subject.upstream])
        if tuple(actual.shape) == results[name].meta.shape and actual.dtype == results[name].meta.dtype:
            wrong = (results[name].verdict(actual).to(actual.device) == Element.VIOLATED) & (actual != 0)
            if bool(wrong.any()):
                index = tuple(int(i) for i in torch.nonzero(wrong)[0])
                judgement.fault(f"{label}: {int(wrong.sum())} of {actual.numel()} elements of {name} are not zero, "
                                f"{list(index)} is {actual[index].item():.9g}")  # fmt: skip


ITEMS = (
    Item("each_output_alone", "each output alone has an upstream gradient, the others zeros", _each_output_alone),
    Item("undefined_grad_output", "upstream gradients that are undefined: None, or zeros where materialised",
         _undefined_grad_output),
    Item("zero_grad_output", "upstream gradients of zero give gradients of zero, without NaN", _zero_grad_output),
)  # fmt: skip
