"""What a kernel is, whatever people wrote, and how it is called.

A Function class or its `apply`, a function, method or partial, a module, a custom operator, a compiled callable: of
each, `plain_function` returns the PyTorch code that it is made of. That is traced where no reference is given, and its
signature says how the kernel is called.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernels_core.errors import TraceError
from kernels_core.kernel.modules import ModuleKernel
from kernels_core.tracing.arguments import named_tensors, signature_of, with_tensors
from kernels_core.tracing.standin import forward_of, is_function_class, python_of_operator, uncompiled


def function_class(kernel: Any) -> type[torch.autograd.Function] | None:
    """Return the Function class behind `kernel`, which is the class itself or its bound `apply`; None otherwise."""
    owner = getattr(kernel, "__self__", None) if getattr(kernel, "__name__", "") == "apply" else kernel
    return owner if is_function_class(owner) else None


def plain_function(kernel: Any) -> Callable[..., Any]:
    """Return the PyTorch function that `kernel` is made of, its own backward and compiler left out."""
    if (found := function_class(kernel)) is not None:
        return forward_of(found)
    if isinstance(kernel, functools.partial):
        return functools.partial(plain_function(kernel.func), *kernel.args, **kernel.keywords)
    if isinstance(kernel, torch.nn.Module):
        return ModuleKernel(kernel).plain_function()
    if (original := uncompiled(kernel)) is not None:
        return plain_function(original)
    if isinstance(kernel, ModuleKernel):
        return kernel.plain_function()
    return python_of_operator(kernel) or kernel


def is_compiled(kernel: Any) -> bool:
    """Return True for a callable that torch.compile made."""
    return uncompiled(kernel) is not None


def title_of(kernel: Any) -> str:
    """Return how a kernel is called in reports."""
    found = function_class(kernel)
    if found is not None:
        return found.__name__
    if isinstance(kernel, functools.partial):
        return title_of(kernel.func)
    name = getattr(kernel, "__name__", None) or getattr(kernel, "_name", None)
    return name if isinstance(name, str) else type(kernel).__name__


def arranged(signature: inspect.Signature | None, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments: by name where the signature has all the names, else in order."""
    if signature is None or not all(name in signature.parameters for name in values):
        return tuple(values.values()), {}
    bound = signature.bind_partial()
    bound.arguments.update({name: values[name] for name in signature.parameters if name in values})
    if set(values) != set(list(signature.parameters)[: len(values)]):
        bound.apply_defaults()  # a gap, which apply of a Function cannot leave
    return bound.args, bound.kwargs


def call(kernel: Any, inputs: Mapping[str, Any], placed: Mapping[str, Any]) -> Any:
    """Call a kernel, by name where the inputs have the names of its parameters, in order otherwise.

    Args:
        kernel: what is called.
        inputs: by the names that the user gave them.
        placed: the tensors to use in their place, in the same order, perhaps under the names of a reference.
    """
    tensors = dict(zip(named_tensors(inputs), named_tensors(placed).values(), strict=True))
    args, kwargs = arranged(signature_or_none(kernel), with_tensors(inputs, tensors))
    found = function_class(kernel)
    return (kernel if found is None else found.apply)(*args, **kwargs)


def in_order(kernel: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """Return the inputs as positional arguments, those of a `*parameter` of the kernel one by one."""
    signature = signature_or_none(kernel)
    variadic = [p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL] if signature else []
    return [x for name, value in inputs.items() for x in (value if name in variadic else [value])]


def signature_or_none(kernel: Any) -> inspect.Signature | None:
    """Return the signature of a kernel, None where it has none that can be read."""
    try:
        return signature_of(plain_function(kernel))
    except TraceError:
        return None


class _Inside(torch.autograd.Function):
    """The same memory as a tensor that is no leaf: autograd refuses to let a Function work in place on a leaf."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)  # a gradient that is None stays None
        alias = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        alias.set_(leaf.untyped_storage(), leaf.storage_offset(), leaf.shape, leaf.stride())
        alias = alias.conj() if leaf.is_conj() else alias
        return torch._neg_view(alias) if leaf.is_neg() else alias

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> torch.Tensor | None:
        return grad

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent.clone()


def inside_a_network(leaf: torch.Tensor) -> torch.Tensor:
    """Return a leaf as a kernel gets it inside of a network: the same memory and layout, but no leaf."""
    if not (leaf.requires_grad and torch.is_grad_enabled()):
        return leaf
    # PyTorch's own apply, whatever Function.apply stands for at the moment (standin.functions_as_forwards)
    inside: torch.Tensor = super(torch.autograd.Function, _Inside).apply(leaf)  # type: ignore[no-untyped-call]
    return inside


@contextlib.contextmanager
def declared_by(method: str) -> Iterator[list[torch.Tensor]]:
    """Within this, the list takes in every tensor that a Function declares with that method of its ctx.

    Args:
        method: "mark_non_differentiable" or "mark_dirty".
    """
    declared: list[torch.Tensor] = []
    owner = torch.autograd.function.FunctionCtx
    original = getattr(owner, method)

    def mark(self: Any, *tensors: Any) -> None:
        declared.extend(t for t in tensors if isinstance(t, torch.Tensor))
        original(self, *tensors)

    setattr(owner, method, mark)
    try:
        yield declared
    finally:
        setattr(owner, method, original)


_VIEW: Sequence[Callable[[torch.Tensor], Any]] = (
    torch.Tensor.data_ptr,
    lambda t: (t.shape, t.stride(), t.dtype),
    torch.Tensor.is_conj,
    torch.Tensor.is_neg,
)


def same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True where two tensors are the same view of the same memory."""
    return all(kind(a) == kind(b) for kind in _VIEW)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in memory of its own that is a conjugate or negated view where the tensor is one."""
    tensor = tensor.detach()
    if tensor.is_conj():
        return copied(tensor.conj()).conj()
    if tensor.is_neg():
        return torch._neg_view(copied(torch._neg_view(tensor)))
    return tensor.clone()
