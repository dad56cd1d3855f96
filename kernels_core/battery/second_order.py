"""Differentiating twice: right, refused, or silently wrong.

A backward that PyTorch is to differentiate must be a function of the inputs and of the upstream gradient in PyTorch's
eyes. What is computed in the forward and kept, or by other means than PyTorch's operations, is a constant to it: the
first gradients are right, and the second derivative lacks terms without a word. A backward that is not meant to be
differentiated says so (`once_differentiable`), and raises.

Autograd adds the terms of a second derivative in the formats of the tensors that it goes through, as the backward was
written and not as the reference was: what cancels in 16 bits there loses digits, and no author can help it. So what is
outside the intervals in a narrow format is judged again on the same values in float32. Where the kernel is right there
it lacks no term, and the roundings are noted.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement, one_line
from kernels_core.battery.subject import Subject
from kernels_core.errors import ExactRefError, TraceError, UnsupportedOperation, UsageError
from kernels_core.kernel.call import KernelRaisedError, phase
from kernels_core.reference import Check
from kernels_core.report import Outcome
from kernels_core.tracing.arguments import with_tensors
from kernels_core.tracing.complex_parts import draw

Tensor = torch.Tensor


def vectors(subject: Subject, prefix: str) -> dict[str, Tensor]:
    """Draw a tensor like each differentiated input, per element in logical order."""
    generator = torch.Generator().manual_seed(0x5EC0)
    like = {name: subject.check.tensors[name] for name in subject.wrt}
    return {prefix + name: draw(t, t.shape, generator).to(subject.check.device) for name, t in like.items()}


class NotComputableError(Exception):
    """The reference has no derivative of this order that could be evaluated."""


@contextlib.contextmanager
def reference_derivative() -> Iterator[None]:
    """Turn an error of the reference within this into a NotComputableError: the kernel has nothing to do with it."""
    try:
        yield
    except (TraceError, UnsupportedOperation, UsageError) as error:
        raise NotComputableError(f"not checked: {one_line(str(error))}") from error


def _double_backward(subject: Subject) -> Finding:
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    given = vectors(subject, "grad_")
    try:
        found, constants = _twice(subject, given)
    except KernelRaisedError as error:
        return Finding(Outcome.REFUSED, f"raised {one_line(error.raised.message)}")
    try:
        with reference_derivative():
            results = subject.check.second_order(list(subject.upstream), given)
    except NotComputableError as error:
        return not_applicable(str(error))
    judgement = Judgement(subject)
    judgement.look(_label(constants), found, results)
    if judgement.faults and not constants:
        _judge_in_float32(subject, given, judgement, {name for name, grad in found.items() if grad is None})
    finding = judgement.finding(f"{len(results)} gradients of the gradients")
    if finding.outcome is Outcome.FAIL and not constants:
        return finding._replace(evidence=f"{finding.evidence}; {_REMEDY}")
    return finding


def _judge_in_float32(
    subject: Subject, given: Mapping[str, Tensor], judgement: Judgement, missing: Collection[str]
) -> None:
    """Turn what was found into remarks where the kernel is right on the same values in float32.

    A kernel that takes no float32 tensors leaves what was found undecided. Nothing is turned where float32 has one of
    the `missing` gradients and it is not zero: what autograd does not find is no rounding. A result saved before its
    cast to the narrow format, say, is the output itself in float32 alone.
    """
    tensors = {name: _wide(t) for name, t in subject.check.tensors.items()}
    if all(tensors[name].dtype == t.dtype for name, t in subject.check.tensors.items()):
        return
    before = subject.check
    check = Check(before.reference, with_tensors(subject.arguments, tensors), profile=before.profile, wrt=before.wrt,
                  kinks=before.kinks, budget=before.budget)  # fmt: skip
    metas = check.cotangents.values()
    upstream = tuple(g.to(meta.dtype) for g, meta in zip(subject.upstream, metas, strict=True))
    wide = dataclasses.replace(subject, check=check, arguments=check.arguments, upstream=upstream)
    vectors = {name: _wide(v) for name, v in given.items()}
    texts, again = list(judgement.faults), Judgement(wide)
    try:
        found, _ = _twice(wide, vectors)
        if any((grad := found.get(name)) is not None and bool(grad.any()) for name in missing):
            return
        again.look("in float32", found, check.second_order(list(upstream), vectors))
    except (KernelRaisedError, ExactRefError) as error:
        judgement.faults.clear()
        judgement.doubts += [
            f"{text}; no lack of terms is proved: {one_line(str(error))} (in float32)" for text in texts
        ]
        return
    if not again.faults:
        judgement.faults.clear()
        judgement.remarks += [f"{text}; right in float32, so these are roundings of autograd's own" for text in texts]


def _wide(tensor: Tensor) -> Tensor:
    """Return a floating tensor of fewer than 32 bits as float32."""
    narrow = tensor.dtype.is_floating_point and tensor.dtype.itemsize < torch.float32.itemsize
    return tensor.detach().float() if narrow else tensor


# A value computed in the forward and saved has no history in the backward: only inputs and outputs have.
_REMEDY = "save inputs and outputs only, other saved values are constants to autograd, or mark it once_differentiable"


def _label(constants: list[str]) -> str:
    if not constants:
        return "differentiated twice"
    return f"differentiated twice ({', '.join(constants)} a constant to autograd; is once_differentiable missing?)"


def _twice(subject: Subject, given: Mapping[str, Tensor]) -> tuple[dict[str, Tensor | None], list[str]]:
    """Return the gradients of sum <vector, gradient> by name, and which gradients depend on nothing.

    Raises:
        KernelRaisedError: the kernel cannot be differentiated twice, and says so.
    """
    leaves = subject.leaves()
    upstream = [g.requires_grad_() for g in subject.grad_outputs()]
    outputs = subject.forward(leaves)
    pairs = list(zip((outputs[n] for n in subject.check.cotangents), upstream, strict=True))
    pairs = [(t, g) for t, g in pairs if t.requires_grad]
    wanted = {**{f"grad_{n}": leaves[n] for n in subject.wrt}}
    with phase("backward"):
        first = torch.autograd.grad([t for t, _ in pairs], list(wanted.values()), [g for _, g in pairs],
                                    create_graph=True, allow_unused=True)  # fmt: skip
    gradients = dict(zip(wanted, first, strict=True))
    live = {name: g for name, g in gradients.items() if g is not None and g.requires_grad}
    names = subject.check.cotangents
    wanted.update({f"grad_grad_{name}": g for name, g in zip(names, upstream, strict=True)})
    second: dict[str, Tensor | None] = dict.fromkeys(wanted)
    if live:
        inputs = [*wanted.values(), *_other_leaves(live.values(), wanted.values())]
        with phase("double backward"):
            values = torch.autograd.grad(list(live.values()), inputs, [given[name] for name in live],
                                         allow_unused=True)  # fmt: skip
        second.update(zip(wanted, values, strict=False))
    return second, [name for name in gradients if name not in live]


def _other_leaves(tensors: Iterable[Tensor], known: Iterable[Tensor]) -> list[Tensor]:
    """Return the leaves of a graph that are not known.

    The node that raises for `once_differentiable` leads to leaves of its own only: it runs where these are asked for.
    """
    nodes, seen, leaves = [t.grad_fn for t in tensors], set(), {id(t): t for t in known}
    found: list[Tensor] = []
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor) and id(leaf) not in leaves:
            leaves[id(leaf)] = leaf
            found.append(leaf)
        nodes += [below for below, _ in node.next_functions]
    return found


ITEMS = (
    Item(
        "double_backward",
        "the gradients can be differentiated, or refuse it (once_differentiable): never silently wrong",
        _double_backward,
    ),
)
