"""The same again: later calls, results that are kept, other values in the same memory, one graph used twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement, same_bits
from kernels_core.battery.subject import Subject
from kernels_core.formats import format_of, ulp
from kernels_core.kernel.call import KernelRaisedError
from kernels_core.report import Outcome
from kernels_core.tracing.complex_parts import differentiable, parts_of, widest

Tensor = torch.Tensor
CALLS = 3


def others(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return other values of the same kind: each floating tensor's own in reverse order, or half of them."""
    return {name: other(t.detach()) if differentiable(t.dtype) else t.detach() for name, t in tensors.items()}


def other(given: Tensor) -> Tensor:
    """Return other values of a floating tensor: its own in reverse order, or half of them where that is the same."""
    wide = widest(given)  # PyTorch reverses no 8-bit floats
    reverse = wide.reshape(-1).flip(0).reshape(given.shape)
    return (wide / 2 if same_bits(reverse, wide) else reverse).to(given.dtype)


def _later_calls(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    for number, found in enumerate(subject.once("calls", _calls), 2):
        judgement.look(f"call {number}", found)
    return judgement.finding(f"calls 2 to {CALLS} return what the first may")


def _calls(subject: Subject) -> list[dict[str, Tensor | None]]:
    """Return what the calls after the first return."""
    return [subject.run() for _ in range(2, CALLS + 1)]


class _Reuse(NamedTuple):
    """What showed in a call, one on other values, and one on the first values in the memory of the second."""

    changed: list[str]
    raised: bool  # on the other values
    again: dict[str, Tensor | None]
    refused: KernelRaisedError | None  # the third call


def _reuse(subject: Subject) -> _Reuse:
    """Keep the results of a call over one on other values: they must not be the kernel's own buffers."""
    kept = subject.once("calls", _calls)[-1]
    before = {name: None if t is None else t.clone() for name, t in kept.items()}
    leaves, upstream = subject.leaves(), subject.grad_outputs()
    memory, gradient_memory = {n: t.clone() for n, t in others(leaves).items()}, _other_grad_outputs(subject)
    try:
        subject.run(_leaves_of(memory, subject), gradient_memory)
    except KernelRaisedError:
        return _Reuse([], True, {}, None)
    changed = [_difference(name, then, kept[name]) for name, then in before.items()]
    for name, leaf in leaves.items():
        memory[name].copy_(leaf.detach())
    for place, values in zip(gradient_memory, upstream, strict=True):
        place.copy_(values)
    again: dict[str, Tensor | None] = {}
    refused = None
    try:
        again = subject.run(_leaves_of(memory, subject), gradient_memory)
    except KernelRaisedError as error:
        refused = error
    return _Reuse([text for text in changed if text], False, again, refused)


def _difference(name: str, then: Tensor | None, now: Tensor | None) -> str:
    if then is None or now is None or same_bits(now, then):
        return ""
    count = int(((now != then) & ~(now.isnan() & then.isnan())).sum())
    return f"{name} of an earlier call changes with the next: {count} of {now.numel()} elements"


def _fresh_allocation(subject: Subject) -> Finding:
    judgement, found = Judgement(subject), subject.once("reuse", _reuse)
    if found.raised:
        return not_applicable("the kernel raises on other values")
    for text in found.changed:
        judgement.fault(text)
    return judgement.finding("results stay as they are when the kernel is called again")


def _same_pointers(subject: Subject) -> Finding:
    judgement, found = Judgement(subject), subject.once("reuse", _reuse)
    if found.raised:
        return not_applicable("the kernel raises on other values")
    label = "new values under the same pointers"
    with judgement.trying(label):
        if found.refused is not None:
            raise found.refused
        judgement.look(label, found.again)
    return judgement.finding("new values in the memory of earlier ones are seen")


def _other_grad_outputs(subject: Subject) -> list[Tensor]:
    return [other(g) for g in subject.upstream]


def _leaves_of(memory: Mapping[str, Tensor], subject: Subject) -> dict[str, Tensor]:
    return {name: t.detach().requires_grad_(name in subject.wrt) for name, t in memory.items()}


def _retained_graph(subject: Subject) -> Finding:
    """Run one graph three times: with another upstream gradient, with that of the case, and again."""
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    judgement = Judgement(subject)
    leaves = subject.leaves()
    outputs = subject.forward(leaves)
    with judgement.trying("the first backward of a graph"):
        subject.backward(outputs, leaves, _other_grad_outputs(subject), retain_graph=True)
    for number in ("second", "third"):
        label = f"the {number} backward of a graph"
        with judgement.trying(label, may_refuse=True):
            judgement.look(label, subject.backward(outputs, leaves, retain_graph=True))
    return judgement.finding("three backwards of one graph return what the first may")


def _determinism(subject: Subject) -> Finding:
    """Report the largest difference between calls on the same inputs; it fails only where the caller set a limit."""
    runs = [{**subject.outputs, **subject.gradients}, *subject.once("calls", _calls)]
    spreads = {name: _spread([run[name] for run in runs]) for name in runs[0]}
    worst = max(spreads, key=lambda name: spreads[name][0], default=None)
    if worst is None or spreads[worst][0] == 0:
        return Finding(Outcome.PASS, f"bitwise equal in {CALLS} calls")
    absolute, ulps, count = spreads[worst]
    text = f"{worst} differs between {CALLS} calls at {count} elements, by up to {ulps:.3g} ulp ({absolute:.3g})"
    limit = subject.settings.nondet_tol
    if limit is not None and absolute > limit:
        return Finding(Outcome.FAIL, f"{text}, more than {limit:g}")
    return Finding(Outcome.NOTED, text)


def _spread(values: list[Tensor | None]) -> tuple[float, float, int]:
    """Return the largest difference to the first call, absolute and in ulp, and the number of elements that differ."""
    first, rest = values[0], values[1:]
    worst, worst_ulp, places = 0.0, 0.0, None
    for other in rest:
        if first is None or other is None or first.shape != other.shape or same_bits(first, other):
            continue
        first, other = (torch.stack(parts_of(t), -1) for t in (first, other))
        wide, again = first.to(torch.float64), other.to(torch.float64)
        gap = torch.where(wide == again, 0.0, (wide - again).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf)
        gap = torch.where(wide.isnan() & again.isnan(), 0.0, gap)
        places = gap > 0 if places is None else places | (gap > 0)
        worst = max(worst, float(gap.max()))
        step = ulp(wide, format_of(first.dtype)) if first.dtype.is_floating_point else torch.ones_like(wide)
        worst_ulp = max(worst_ulp, float((gap / step).nan_to_num(nan=0.0, posinf=torch.inf).max()))
    return worst, worst_ulp, 0 if places is None else int(places.sum())


ITEMS = (
    Item("later_calls", "later calls on the same inputs return what the first may", _later_calls),
    Item("fresh_allocation", "outputs and gradients of one call are not changed by the next", _fresh_allocation),
    Item("same_pointers", "other values in the memory of earlier inputs are seen (no cache by address)",
         _same_pointers),
    Item("retained_graph", "one graph differentiated three times gives the same gradients", _retained_graph),
    Item("determinism", "three calls are bitwise equal; the largest difference is reported, and fails beyond a limit",
         _determinism),
)  # fmt: skip
