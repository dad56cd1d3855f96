"""What happens between a forward and its backward: another call of the same kernel, or a write to what it was given.

A network runs all forwards before the first backward, and an optimizer may write to a parameter in between. What a
forward keeps on its class, in a module or in a global belongs to the last call, or to the first; what it keeps as an
attribute of `ctx` has no version counter, so that autograd cannot see that it is no longer what the forward saw. The
other call has other values of the tensors, and of those plain arguments that `arguments` knows another value of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernels_core.battery import graph
from kernels_core.battery.arguments import labelled, other_values
from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.repeats import other, others
from kernels_core.battery.subject import Subject
from kernels_core.kernel.call import KernelRaisedError, run_forward
from kernels_core.kernel.callee import same_memory

Tensor = torch.Tensor
MOST = 6  # tensors that are changed, each in a run of its own

# What runs before the backward that is judged; "a" is the case, "b" the same kernel on other values. A kernel that
# keeps the last call only, or the calls in a queue, shows in the first order, one that keeps a stack in the second.
_ORDERS = {  # True where b comes first
    "forward a, forward b, backward b, backward a": False,
    "forward b, forward a, backward b, backward a": True,
}


def _interleaved_calls(subject: Subject) -> Finding:
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    judgement, arguments = Judgement(subject), _other_arguments(subject)
    # With the same arguments too: what a kernel keeps apart for each argument shows only there.
    for changed in ({}, arguments) if arguments else ({},):
        for label, b_first in _ORDERS.items():
            with judgement.trying(label):
                judgement.look(label, _between(subject, b_first, changed))
    others_given = ", ".join(labelled(name, value) for name, value in arguments.items())
    return judgement.finding(
        "a backward uses what its own forward was given" + f"; {others_given} in the other call" * bool(others_given)
    )


def _other_arguments(subject: Subject) -> dict[str, Any]:
    """Return another value of each plain argument that has one."""
    return {name: found[0] for name, found in other_values(subject).items() if found}


def _between(subject: Subject, b_first: bool, changed: Mapping[str, Any]) -> Mapping[str, Tensor | None]:
    """Return the gradients of the case where a second call on other values, and these arguments, runs in between."""
    leaves = subject.leaves()
    second = {n: t.requires_grad_(leaves[n].requires_grad) for n, t in others(leaves).items()}
    kept = _other_forward(subject, second, changed) if b_first else None
    outputs = subject.forward(leaves)
    if not b_first:
        kept = _other_forward(subject, second, changed)
    if kept is not None:
        _other_backward(subject, kept, second)
    return subject.backward(outputs, leaves)


def _other_forward(
    subject: Subject, leaves: Mapping[str, Tensor], changed: Mapping[str, Any]
) -> dict[str, Tensor] | None:
    """Return the outputs on other values, with the arguments of the case where the kernel raises on others."""
    for arguments in ({**subject.inputs, **changed}, subject.inputs)[not changed :]:
        try:
            return run_forward(subject.function, arguments, subject.arguments, leaves)
        except KernelRaisedError:
            continue
    return None


def _other_backward(subject: Subject, outputs: Mapping[str, Tensor], leaves: Mapping[str, Tensor]) -> None:
    given = zip(subject.check.cotangents, subject.upstream, strict=False)
    pairs = [(outputs[name], g) for name, g in given if name in outputs]
    try:
        upstream = [other(g) if g.shape == t.shape else torch.ones_like(t) for t, g in pairs]
        subject.backward(outputs, leaves, upstream)
    except (KernelRaisedError, ValueError):  # a shape that depends on the values has no upstream gradient here
        return


def _changed_in_place(subject: Subject) -> Finding:
    """Write to each input and output in turn before the backward: autograd raises, or nothing depends on it."""
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    judgement, stopped = Judgement(subject), []
    names = [*subject.check.tensors, *subject.outputs]
    for name in names[:MOST]:
        label = f"{name} changed before the backward"
        try:
            found, keeper = _after_a_write(subject, name)
        except KernelRaisedError as error:
            if error.raised.phase == "forward":
                raise
            stopped.append(name)
            continue
        before = len(judgement.faults)
        judgement.look(label, found)
        judgement.faults[before:] = [f"{text}; {keeper}" for text in judgement.faults[before:]]
    raises = f"autograd raises where {', '.join(stopped)} changed" if stopped else ""
    rest = len(names[:MOST]) - len(stopped)
    unused = f"{rest} {'other is' if rest == 1 else 'others are'} not used again" if rest else ""
    return judgement.finding("; ".join(filter(None, (raises, unused))))


def _after_a_write(subject: Subject, name: str) -> tuple[Mapping[str, Tensor | None], str]:
    """Return the gradients after a write to one input or output, and how the kernel keeps that tensor."""
    leaves = subject.leaves()
    # no leaves: a leaf that requires a gradient can only be written to without a version counter that counts
    given = {n: t.clone() if t.requires_grad else t for n, t in leaves.items()}
    outputs = run_forward(subject.function, subject.inputs, subject.arguments, given, as_given=True)
    target = given[name] if name in given else outputs[name]
    keeper = _keeper(outputs, target)
    try:
        with torch.no_grad():
            target.copy_(_moved(target))
    except RuntimeError:  # one number expanded, or a view that autograd lets nobody write to
        return {}, keeper
    return subject.backward(outputs, leaves), keeper


def _moved(given: Tensor) -> Tensor:
    """Return other values: a floating tensor's as `other` has them, the same integers in reverse order."""
    return other(given.detach()) if given.dtype.is_floating_point else given.reshape(-1).flip(0).reshape(given.shape)


def _keeper(outputs: Mapping[str, Tensor], target: Tensor) -> str:
    for node, attribute in _attributes(outputs, target):
        leak = " and leaks its memory" if any(same_memory(target, t) for t in outputs.values()) else ""
        return f"{node} keeps it as ctx.{attribute}, which has no version counter{leak}; use save_for_backward"
    return "it is kept where autograd has no version counter; use save_for_backward"


def _attributes(outputs: Mapping[str, Tensor], target: Tensor) -> Iterator[tuple[str, str]]:
    for node in graph.function_nodes(outputs.values()):
        for attribute, value in vars(node).items():
            if isinstance(value, torch.Tensor) and same_memory(value, target):
                yield node._forward_cls.__name__, attribute


ITEMS = (
    Item("interleaved_calls", "forward, forward of other values, then both backwards: each has its own inputs",
         _interleaved_calls),
    Item("changed_in_place", "an input or output written to before the backward: autograd raises, or it is not used",
         _changed_in_place),
)  # fmt: skip
