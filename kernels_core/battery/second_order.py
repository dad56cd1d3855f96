"""Differentiating twice: right, refused, or silently wrong.

A backward that PyTorch is to differentiate must be a function of the inputs and of the upstream gradient in PyTorch's
eyes. What is computed in the forward and kept, or by other means than PyTorch's operations, is a constant to it: the
first gradients are right, and the second derivative lacks terms without a word. A backward that is not meant to be
differentiated says so (`once_differentiable`), and raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement, one_line
from kernels_core.battery.subject import Subject
from kernels_core.errors import TraceError, UnsupportedOperation, UsageError
from kernels_core.kernel.call import KernelRaisedError, phase
from kernels_core.report import Outcome
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
    finding = judgement.finding(f"{len(results)} gradients of the gradients")
    if finding.outcome is Outcome.FAIL and not constants:
        return finding._replace(evidence=f"{finding.evidence}; {_REMEDY}")
    return finding


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
