"""Faults in one operation of a kernel, planted while its own forward and backward run.

A dispatch mode counts the ATen operations and damages the result of one of them in place. So nothing need be traced:
any forward and backward made of PyTorch operations can be damaged; of a compiled kernel only the results can.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_core.power import results

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation that a run performed: its number, name, and whether a result could be damaged."""

    number: int
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault: which operation, and what happens to its result."""

    number: int
    operation: str
    kind: str

    @property
    def lowers_precision(self) -> bool:
        """True where the exact value is right and only its precision is not."""
        return self.kind.startswith("rounded")


def _first_operand(call: Call) -> Tensor | None:
    """Drop a term or a factor: the result is the first operand alone."""
    operands = [value for value in call.args[:2] if isinstance(value, Tensor)]
    if len(call.args) < 2 or not operands or operands[0].shape != call.result.shape:
        return None
    return operands[0].to(call.result.dtype)


def _last_term_left_out(call: Call) -> Tensor | None:
    """Sum over all but the last index of the reduced dimension."""
    if call.name in ("aten.mm", "aten.bmm"):
        a, b = call.args
        return call.again(a[..., :-1], b[..., :-1, :]) if a.shape[-1] > 1 else None
    (a, *rest) = call.args
    dims = rest[0] if rest else None
    dim = (dims[0] if isinstance(dims, (list, tuple)) else dims) if dims not in (None, []) else 0
    if not isinstance(a, Tensor) or not a.dim() or a.shape[dim] < 2 or call.name == "aten.mean":
        return None
    return call.again(a.narrow(dim, 0, a.shape[dim] - 1), *rest)


def _not_reduced(call: Call) -> Tensor | None:
    """Miss the reduction: the first slice stands for the sum."""
    (a, *rest) = call.args
    dims = rest[0] if rest else list(range(a.dim()))
    for dim in dims if isinstance(dims, (list, tuple)) else [dims]:
        a = a.narrow(dim, 0, 1)
    return a.reshape(call.result.shape) if a.numel() == call.result.numel() else None


def _inverted(call: Call) -> Tensor | None:
    return ~call.result


def _mask_shifted(call: Call) -> Tensor | None:
    return call.result.roll(1, -1) if call.result.dim() else None


@dataclasses.dataclass(frozen=True)
class Call:
    """An operation that has just been performed."""

    func: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Tensor

    def again(self, *args: Any) -> Tensor:
        """Return the operation on other arguments."""
        found: Tensor = self.func(*args, **self.kwargs)
        return found


Damage = Callable[[Call], "Tensor | None"]


def _of_value(kind: str) -> Damage:
    damage = results.KINDS[kind]
    return lambda call: damage(call.result)


_EVERYWHERE = ("sign flipped", "factor 1.001", "factor 1.01", "factor 2", "transposed", "last column unprocessed",
               "one element zero", "rounded to float16", "rounded to bfloat16")  # fmt: skip
_SUMS = ("aten.sum", "aten.mean", "aten.mm", "aten.bmm")
KINDS: Mapping[str, Damage] = {
    **{kind: _of_value(kind) for kind in _EVERYWHERE},
    "term or factor dropped": _first_operand,
    "last term of the sum left out": _last_term_left_out,
    "reduction missing": _not_reduced,
    "mask inverted": _inverted,
    "mask shifted by one": _mask_shifted,
}


def _kinds(operation: Operation) -> list[str]:
    if operation.dtype is torch.bool:
        return ["mask inverted", "mask shifted by one"]
    kinds = list(_EVERYWHERE)
    if operation.name in ("aten.add", "aten.sub", "aten.mul", "aten.div"):
        kinds.append("term or factor dropped")
    if operation.name in _SUMS:
        kinds.append("last term of the sum left out")
    if operation.name == "aten.sum":
        kinds.append("reduction missing")
    return kinds


class Steps(TorchDispatchMode):
    """Counts operations with results of their own; damages one."""

    def __init__(self, fault: Fault | None = None) -> None:
        """Plant `fault`, or only count."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.fault, self.operations = fault, list[Operation]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Perform the operation, damage its first result where it is the one."""
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        first = next((leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, Tensor)), None)
        if first is None or not _owns_its_result(func) or not _damageable(first):
            return found
        number, name = len(self.operations), str(func).rpartition(".")[0]
        self.operations.append(Operation(number, name, first.dtype, tuple(first.shape)))
        if self.fault is not None and self.fault.number == number and self.fault.operation == name:
            damaged = KINDS[self.fault.kind](Call(func, name, args, kwargs, first))
            if damaged is not None:
                first.copy_(damaged)
        return found


def _owns_its_result(func: Any) -> bool:
    schema = func._schema
    return not schema.is_mutable and all(returned.alias_info is None for returned in schema.returns)


def _damageable(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and (tensor.is_floating_point() or tensor.dtype is torch.bool)


_PREPARATION = ("aten.clone", "aten.detach", "aten.zeros", "aten.ones", "aten.empty", "aten.full", "aten.ones_like",
                "aten.zeros_like", "aten.empty_like", "aten.scalar_tensor")  # fmt: skip


def counted(run: Callable[[], Any]) -> list[Operation]:
    """Return the operations of a run."""
    mode = Steps()
    with mode:
        run()
    return mode.operations


def faults(operations: Sequence[Operation]) -> list[Fault]:
    """Return every fault that can be planted in these operations."""
    return [
        Fault(operation.number, operation.name, kind)
        for operation in operations
        if operation.name not in _PREPARATION
        for kind in _kinds(operation)
    ]
