"""What a kernel must not write to: its inputs, its outputs once returned, the upstream gradients, parameters."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

import torch

from kernels_core.battery import graph
from kernels_core.battery.item import Finding, Item
from kernels_core.battery.judgement import Judgement, same_bits
from kernels_core.battery.subject import Subject
from kernels_core.kernel.call import KernelRaisedError
from kernels_core.kernel.callee import declared_by
from kernels_core.kernel.modules import ModuleKernel
from kernels_core.tracing.arguments import call_bound, with_tensors
from kernels_core.tracing.standin import is_function_class

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Watched:
    """A tensor with its values as they were."""

    name: str
    tensor: Tensor
    before: Tensor
    fault: bool

    @property
    def changed(self) -> str:
        """What changed, "" where nothing did."""
        if self.tensor.shape != self.before.shape:
            return f"{self.name}: its shape was {list(self.before.shape)}, is {list(self.tensor.shape)}"
        if same_bits(self.tensor, self.before):
            return ""
        where = torch.nonzero((self.tensor != self.before) & ~(self.tensor.isnan() & self.before.isnan()))
        index = tuple(int(i) for i in where[0])
        values = f"{list(index)} was {self.before[index].item():.9g}, is {self.tensor[index].item():.9g}"
        return f"{self.name}: {len(where)} of {self.tensor.numel()} elements changed, {values}"


def _mutation(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    leaves = subject.leaves()
    upstream = dict(zip(subject.check.cotangents, subject.grad_outputs(), strict=True))
    inputs = _watch(leaves, "input ")
    state = [*_watch(_parameters(subject), "parameter "), *_watch(_buffers(subject), "", fault=False)]
    with declared_by("mark_dirty") as dirty:
        outputs = subject.forward(leaves)
    meant = _written_by_reference(subject)
    inputs = _kept(inputs, dirty, meant)
    _compare(judgement, "forward", [*inputs, *state])
    later = _watch(outputs, "")
    saved = _watch(_saved(outputs), "saved tensor ", fault=False)
    given = _watch(upstream, "grad_")
    inputs, state = _again(inputs), _again(state)
    subject.backward(outputs, leaves, list(upstream.values()), retain_graph=True)
    _compare(judgement, "backward", [*inputs, *later, *given, *state, *_not_among(saved, [*inputs, *later])])
    if not judgement.faults:
        _look_without_gradient(subject, judgement, meant)
    return judgement.finding("inputs, outputs, upstream gradients, saved tensors and buffers are unchanged")


def _look_without_gradient(subject: Subject, judgement: Judgement, meant: set[str]) -> None:
    """Compare the inputs after a forward of which no gradient is asked: a path of its own in many kernels."""
    leaves = subject.leaves(())
    inputs = _watch(leaves, "input ")
    with declared_by("mark_dirty") as dirty, torch.no_grad(), contextlib.suppress(KernelRaisedError):
        subject.forward(leaves)
    _compare(judgement, "forward under no_grad", _kept(inputs, dirty, meant))


def _kept(inputs: list[Watched], dirty: list[Tensor], meant: set[str]) -> list[Watched]:
    """Leave out what the Function declares to change in place, and what the reference writes to as well."""
    places = {t.data_ptr() for t in dirty}
    return [one for one in inputs if one.tensor.data_ptr() not in places and one.name not in meant]


def _written_by_reference(subject: Subject) -> set[str]:
    """Return which inputs the reference writes to as well, as running statistics are; a Function must declare them."""
    if is_function_class(subject.function):
        return set()
    given = {name: t.detach().clone() for name, t in subject.check.tensors.items()}
    watched = _watch(given, "input ")
    with torch.no_grad():
        call_bound(subject.check.reference.function, with_tensors(subject.arguments, given))
    return {one.name for one in watched if one.changed}


def _watch(tensors: Mapping[str, Tensor], kind: str, *, fault: bool = True) -> list[Watched]:
    return [Watched(kind + name, t, t.detach().clone(), fault) for name, t in tensors.items()]


def _again(watched: list[Watched]) -> list[Watched]:
    return [dataclasses.replace(one, before=one.tensor.detach().clone()) for one in watched]


def _compare(judgement: Judgement, phase: str, watched: list[Watched]) -> None:
    for one in watched:
        if changed := one.changed:
            (judgement.fault if one.fault else judgement.remark)(f"the {phase} writes to {changed}")


def _not_among(saved: list[Watched], others: list[Watched]) -> list[Watched]:
    """Leave out saved tensors that are an input or an output, which are watched under their own name."""
    places = {(one.tensor.data_ptr(), one.tensor.shape) for one in others}
    return [one for one in saved if (one.tensor.data_ptr(), one.tensor.shape) not in places]


def _saved(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what the Functions behind the outputs keep: saved tensors and attributes of their ctx."""
    found: dict[str, Tensor] = {}
    for node in graph.function_nodes(outputs.values()):
        kept = [*node.saved_tensors, *vars(node).values()]
        for place, tensor in enumerate(t for t in kept if isinstance(t, torch.Tensor)):
            found |= _parts(f"{place} of {node._forward_cls.__name__}", tensor)
    return found


def _parts(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Return the tensors that a sparse one is stored in, any other as it is."""
    of_layout: Mapping[torch.layout, tuple[str, ...]] = {
        torch.sparse_coo: ("_indices", "_values"),
        torch.sparse_csr: ("crow_indices", "col_indices", "values"),
        torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
        torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
        torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    }
    if tensor.layout not in of_layout:
        return {name: tensor}
    stored = {part: getattr(tensor.detach(), part)() for part in of_layout[tensor.layout]}
    return {f"{name} ({part.lstrip('_').replace('_', ' ')})": t for part, t in stored.items()}


def _parameters(subject: Subject) -> dict[str, Tensor]:
    """Return the parameters of a module that are no inputs."""
    function = subject.function
    return function.parameters if isinstance(function, ModuleKernel) and not function.arguments else {}


def _buffers(subject: Subject) -> dict[str, Tensor]:
    """Return the buffers of a module and the tensors that the Function's methods find outside of themselves."""
    function = subject.function
    if isinstance(function, ModuleKernel):  # given copies: see buffers.py
        return {}
    methods = [getattr(function, name, None) for name in ("forward", "backward")] + [function]
    found: dict[str, Tensor] = {}
    for method in methods:
        code, names = getattr(method, "__code__", None), getattr(method, "__globals__", {})
        for name in code.co_names if code is not None else ():
            if isinstance(names.get(name), torch.Tensor):
                found |= _parts(f"global {name}", names[name])
    return found


ITEMS = (Item("mutation", "inputs, outputs, upstream gradients, saved tensors, buffers are not written to", _mutation),)
