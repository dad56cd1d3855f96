"""The program of a declared backward: the route that a kernel's author says it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels_core.errors import TraceError
from kernels_core.program import Program
from kernels_core.tracing.arguments import Arguments, cotangent_name, with_defaults, with_tensors
from kernels_core.tracing.complex_parts import apart, differentiable, names_of_parts, together, values_apart
from kernels_core.tracing.graph import to_graph
from kernels_core.tracing.primal import Primal, titled
from kernels_core.tracing.trace import declared_call
from kernels_core.tracing.translation import to_program

Tensor = torch.Tensor


def trace_declared(
    backward: Callable[..., Any],
    function: Callable[..., Any],
    arguments: Arguments,
    wrt: Sequence[str],
    forward: Program,
) -> Program:
    """Return the program of a declared backward: inputs, then the outputs, then the upstream gradients.

    `backward(inputs, outputs, grads)` gets three tuples (the inputs being all arguments of `function`, defaults
    included) and returns one gradient for each tensor input, in order
    (None for those that are not differentiated), or one for each floating one, or one for each name in `wrt`.
    """
    traced = Primal(function, arguments, wrt, forward)
    tensors, sources = traced.tensors, traced.sources
    complete = with_defaults(function, arguments)

    def declared(values: list[Tensor], stored: list[Tensor], upstream: list[Tensor]) -> Any:
        placed = with_tensors(complete, together(tensors, values))
        given, grads = together(traced.outputs, stored), together(traced.floating, upstream)
        args = (tuple(placed.values()), tuple(given.values()), tuple(grads.values()))
        found = _gradients_in_order(declared_call(backward, args, sources), tensors, wrt)
        _require_kinds(found, traced.chosen(wrt))
        return values_apart(found, [tensors[name] for name in wrt])

    more = [traced.stand_ins(traced.outputs), traced.cotangents()]
    graph = to_graph(declared, [list(apart(tensors).values()), *more], sources, set())
    inputs = [*names_of_parts(tensors), *forward.outputs, *titled(traced.floating, cotangent_name)]
    return to_program(graph, inputs, titled(traced.chosen(wrt), cotangent_name), sources, set())


def _require_kinds(gradients: Sequence[Tensor | None], like: Mapping[str, Tensor]) -> None:
    for (name, tensor), grad in zip(like.items(), gradients, strict=True):
        if grad is not None and grad.is_complex() != tensor.is_complex():
            raise TraceError(f"the declared backward returned {grad.dtype} for grad_{name}, expected {tensor.dtype}")


def _gradients_in_order(result: Any, tensors: Mapping[str, Tensor], wrt: Sequence[str]) -> list[Tensor | None]:
    gradients = [result] if isinstance(result, Tensor) else list(result)
    if len(gradients) == len(wrt):
        return gradients
    floating = [name for name, value in tensors.items() if differentiable(value.dtype)]
    for names in (list(tensors), floating):
        if len(gradients) == len(names):
            return [gradients[names.index(name)] for name in wrt]
    raise TraceError(
        f"the declared backward returned {len(gradients)} gradients for {len(wrt)} differentiated inputs\n"
        f"return one for each of: {', '.join(wrt)}"
    )
