"""The kernel's own forward and backward as one program, where they are made of PyTorch operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels_core.errors import ExactRefError
from kernels_core.kernel.callee import call, function_class
from kernels_core.program import Program
from kernels_core.reference import Check
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.standin import StandInContext, has_separate_context

Tensor = torch.Tensor


def own_program(function: Callable[..., Any], check: Check, upstream: Sequence[Tensor]) -> Program | None:
    """Return the program of outputs and gradients as the kernel computes them, None where it cannot be traced.

    Inputs are those of the check and "grad_output...", results "output..." and "grad_<name>". A Function's backward is
    its own; a callable's is what autograd makes of it.
    """
    inputs = {**check.tensors, **_upstream(check, upstream)}
    names = [*check.forward.outputs, *(f"grad_{name}" for name in check.wrt)]
    try:
        own = function_class(function)
        if own is not None:
            return tracing.trace_for_replay(lambda given: _both(own, check, given), inputs, names)
        return tracing.trace_for_replay(lambda given: _derived(function, check, given), inputs, names, as_it_runs=True)
    except (ExactRefError, RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return None  # a Triton or C++ kernel, numpy, values that leave PyTorch: nobody can say which line it was


def _upstream(check: Check, upstream: Sequence[Tensor]) -> dict[str, Tensor]:
    return {tracing.cotangent_name(n): g.detach() for n, g in zip(check.cotangents, upstream, strict=True)}


def _both(function: type[torch.autograd.Function], check: Check, given: Mapping[str, Tensor]) -> list[Tensor | None]:
    arguments = tracing.with_tensors(check.arguments, given)
    context = StandInContext(tuple(arguments.values()))
    context.needs_input_grad = tuple(name in check.wrt for name in arguments)
    args = tuple(arguments.values())
    if has_separate_context(function):
        result = function.forward(*args)
        function.setup_context(context, args, result)
    else:
        result = function.forward(context, *args)
    names, outputs = tracing.output_names(result)
    upstream = [given.get(tracing.cotangent_name(name)) for name in names]
    gradients = function.backward(context, *upstream)
    gradients = [gradients] if isinstance(gradients, Tensor) or gradients is None else list(gradients)
    by_name = dict(zip(arguments, gradients, strict=False))
    return [*outputs, *(by_name.get(name) for name in check.wrt)]


def _derived(function: Callable[..., Any], check: Check, given: Mapping[str, Tensor]) -> list[Tensor | None]:
    """Run a callable and autograd on it, with the backwards of the Functions that it applies."""
    leaves = {name: given[name].detach().requires_grad_() for name in check.wrt}
    placed = tracing.with_tensors(check.arguments, {**given, **leaves})
    with torch.enable_grad():
        names, outputs = tracing.output_names(call(function, check.arguments, placed))
    upstream = [given.get(tracing.cotangent_name(name)) for name in names]
    pairs = [(t, g) for t, g in zip(outputs, upstream, strict=True) if g is not None and t.requires_grad]
    gradients: Sequence[Tensor | None] = [None] * len(leaves)
    if pairs and leaves:
        roots, grads = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(roots, list(leaves.values()), grads, allow_unused=True)
    return [*(t.detach() for t in outputs), *gradients]
