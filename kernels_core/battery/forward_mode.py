"""Forward mode: the tangents of the outputs, from a Function's own `jvp`."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement, one_line
from kernels_core.battery.second_order import NotComputableError, reference_derivative, vectors
from kernels_core.battery.subject import Subject
from kernels_core.kernel.call import KernelRaisedError
from kernels_core.kernel.callee import function_class
from kernels_core.report import Outcome
from kernels_core.tracing.derivatives import load_forward_mode, tangent_name

Tensor = torch.Tensor


class _Operators(TorchDispatchMode):
    """Collects the operators of `torch.library` that run within this; their tangents are lost without a word."""

    def __init__(self, found: set[str]) -> None:
        """Add their names to `found`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation."""
        if func.namespace not in _PYTORCHS:
            self.found.add(func._schema.name)
        return func(*args, **(kwargs or {}))


_PYTORCHS = frozenset({"aten", "prims", "prim", "profiler"})


def _has_jvp(subject: Subject) -> bool:
    """Return True for a Function with a `jvp` of its own."""
    function = function_class(subject.function)
    return function is not None and function.jvp is not torch.autograd.Function.jvp


def _forward_mode(subject: Subject) -> Finding:
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    function, given = function_class(subject.function), vectors(subject, "")
    if function is not None and not _has_jvp(subject):
        return not_applicable("the Function has no jvp")
    operators: set[str] = set()
    try:
        with _Operators(operators):
            found = _tangents(subject, given)
    except KernelRaisedError as error:
        why = f"raised {one_line(error.raised.message)}"
        return Finding(Outcome.FAIL, why) if _has_jvp(subject) else not_applicable(why)
    if operators and None in found.values():
        return not_applicable(f"PyTorch has no forward mode for a custom operator: {', '.join(sorted(operators))}")
    try:
        with reference_derivative():
            results = subject.check.tangents(given)
    except NotComputableError as error:
        return not_applicable(str(error))
    judgement = Judgement(subject)
    judgement.look("forward mode", found, results)
    return judgement.finding(f"the tangents of {len(results)} output{'s' if len(results) > 1 else ''}")


def _tangents(subject: Subject, given: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """Return the tangents of the floating outputs by name; None where an output has none, which means zero.

    Raises:
        KernelRaisedError: the kernel raised, or has no forward mode.
    """
    load_forward_mode()
    with forward_ad.dual_level():
        leaves = subject.leaves(())
        duals = {name: forward_ad.make_dual(leaves[name], v.clone()) for name, v in given.items()}
        outputs = subject.forward({**leaves, **duals})
        return {
            tangent_name(name): forward_ad.unpack_dual(outputs[name]).tangent
            for name in subject.check.cotangents
            if name in outputs
        }


ITEMS = (Item("forward_mode", "tangents from a Function's own jvp", _forward_mode),)
