"""A kernel made ready for its check: its inputs, the parameters of a module among them, under the reference's names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernels_core.errors import UsageError
from kernels_core.kernel.callee import in_order, plain_function, title_of
from kernels_core.kernel.modules import ModuleKernel, as_kernel, ignores_parameters, reference_for
from kernels_core.profiles.knobs import Given
from kernels_core.reference import Check, Reference, reference
from kernels_core.tracing import arguments as named
from kernels_core.tracing.complex_parts import differentiable


def prepared(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    *,
    reference: Callable[..., Any] | None = None,
    reference_backward: Callable[..., Any] | None = None,
    surrogate: bool = False,
    wrt: Sequence[str] | None = None,
    profile: Given | None = None,
    bound: str | None = None,
    kinks: str = "accept",
) -> Check:
    """Return the reference at the inputs of a kernel; arguments as in `verify`."""
    function, inputs, wrt = with_parameters(function, inputs, wrt, reference)
    ref = reference_of(function, reference, reference_backward, surrogate)
    return Check(ref, _fit(function, ref, inputs), profile=profile, bound=bound, wrt=wrt, kinks=kinks)


def with_parameters(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    wrt: Sequence[str] | None,
    reference: Callable[..., Any] | None,
) -> tuple[Callable[..., Any], Mapping[str, Any], Sequence[str] | None]:
    """Return the kernel, its inputs and what is differentiated, the parameters of a module among them."""
    kernel = as_kernel(function)
    if not isinstance(kernel, ModuleKernel):
        return function, inputs, wrt
    if ignores_parameters(kernel, reference):
        own = kernel.with_its_own_parameters()
        return own, {name: value for name, value in inputs.items() if name not in kernel.arguments}, wrt
    complete = {**inputs, **{name: value for name, value in kernel.values().items() if name not in inputs}}
    if wrt is None and kernel.frozen():
        floating = [name for name, t in named.named_tensors(complete).items() if differentiable(t.dtype)]
        wrt = [name for name in floating if name not in kernel.frozen()]
    return kernel, complete, wrt


def reference_of(
    function: Callable[..., Any],
    given: Callable[..., Any] | None,
    backward: Callable[..., Any] | None,
    surrogate: bool,
) -> Reference:
    """Return the reference of a kernel: the given one, else its own forward (arguments as in `verify`)."""
    if given is not None:
        return reference(reference_for(function, given), backward=backward, surrogate=surrogate)
    own, name = plain_function(function), title_of(function)
    return reference(own, backward=backward, surrogate=surrogate, name=name if own is function else f"{name}.forward")


def _fit(function: Callable[..., Any], ref: Reference, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs under the reference's parameter names: matched by name where all fit, else by position."""
    parameters = ref.signature.parameters
    if not all(name in parameters for name in inputs):
        return named.bind(ref.function, in_order(function, inputs), {})
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in variadic]
    missing = [name for name in required if name not in inputs]
    if missing:
        raise UsageError(f"no input is given for {', '.join(missing)} of {ref.name}{_signature(ref)}\n"
                         f"given: {', '.join(inputs) or 'none'}")  # fmt: skip
    return dict(inputs)


def _signature(ref: Reference) -> str:
    return f"({', '.join(ref.signature.parameters)})"
