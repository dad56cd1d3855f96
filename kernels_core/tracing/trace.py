"""From a PyTorch function to a program.

The function is called with its composites taken apart, which gives a flat graph of ATen operations (`graph.py`), and
every operation of the graph becomes a step (`translation.py`). Programs of its derivatives: `derivatives.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels_core.program import Program, without_dead_steps
from kernels_core.tracing.arguments import (
    Arguments,
    bind,
    call_bound,
    cotangent_name,
    named_tensors,
    output_names,
    signature_of,
    with_defaults,
    with_tensors,
)
from kernels_core.tracing.complex_parts import apart, together
from kernels_core.tracing.composites import composites_first
from kernels_core.tracing.graph import require_callable, to_graph, traced, without_mutation, without_values
from kernels_core.tracing.lines import lines_of_operations
from kernels_core.tracing.remembered import forgotten
from kernels_core.tracing.standin import functions_as_forwards, refuses_leaves
from kernels_core.tracing.translation import Translation, to_program

__all__ = [
    "bind",
    "call_bound",
    "call_in_place",
    "call_reference",
    "cotangent_name",
    "declared_call",
    "named_tensors",
    "output_names",
    "require_callable",
    "signature_of",
    "trace",
    "trace_for_replay",
    "with_defaults",
    "with_tensors",
    "without_values",
]


def trace(function: Callable[..., Any], arguments: Arguments) -> Program:
    """Return the program of the forward: results "output...".

    Raises:
        TraceError: the function cannot be traced, or uses an operation without a rule.
    """
    tensors = named_tensors(arguments)
    names: list[str] = []
    sources: dict[str, str] = {}

    whole: list[str] = []

    def forward(values: list[torch.Tensor]) -> list[torch.Tensor]:
        result = call_reference(function, arguments, together(tensors, values), sources)
        outputs = dict(zip(*output_names(result), strict=True))
        whole[:] = [name for name, tensor in outputs.items() if tensor.is_complex()]
        found = apart(outputs)
        names[:] = found
        return list(found.values())

    given = apart(tensors)
    graph = to_graph(forward, [list(given.values())], sources, set())
    return dataclasses.replace(to_program(graph, list(given), names, sources), complex_outputs=tuple(whole))


def trace_for_replay(
    function: Callable[..., Any], inputs: Mapping[str, torch.Tensor], names: Sequence[str], *, as_it_runs: bool = False
) -> Program:
    """Return the program of any PyTorch code, to be replayed step by step; its operations need no rules.

    Args:
        function: takes the tensors by name, returns one tensor or None for each name in `names`.
        inputs: by name.
        names: of the results.
        as_it_runs: autograd and the backwards of Functions run as they are, where the code asks for gradients.

    The source of a step holds a line for each of the user's frames, innermost first.
    """
    sources: dict[str, str] = {}
    floating = {name: tensor for name, tensor in inputs.items() if tensor.is_floating_point()}

    def call(values: list[torch.Tensor]) -> list[Any]:
        given = {**inputs, **dict(zip(floating, values, strict=True))}  # code may branch on integers, or list them
        with contextlib.ExitStack() as stack:
            if as_it_runs:
                stack.enter_context(composites_first())  # which refuses what leaves PyTorch
                stack.enter_context(lines_of_operations(sources))
            else:
                stack.enter_context(composites_first(sources, callers=True))
                stack.enter_context(functions_as_forwards())
            return list(function(given))

    arguments, before = [list(floating.values())], set[str]()
    graph = without_mutation(traced(call, arguments, mutates=not as_it_runs), arguments, sources, before)
    translation = Translation(graph, list(floating), list(names), sources, every_operation=True)
    return without_dead_steps(translation.program())


def call_reference(
    function: Callable[..., Any], arguments: Arguments, tensors: Mapping[str, torch.Tensor], sources: dict[str, str]
) -> Any:
    """Call the reference with these tensors in place, composites and Functions taken apart."""
    with composites_first(sources), functions_as_forwards(), forgotten(function):
        return call_bound(function, with_tensors(arguments, tensors))


def call_in_place(
    function: Callable[..., Any], arguments: Arguments, tensors: Mapping[str, torch.Tensor], sources: dict[str, str]
) -> Any:
    """Call as `call_reference`; a function that works in place on what is differentiated gets copies, as in nets."""
    copies = {name: t.clone() for name, t in tensors.items()}  # now: an attempt that fails may have changed the others
    try:
        return call_reference(function, arguments, tensors, sources)
    except RuntimeError as error:
        if not refuses_leaves(error):
            raise
    return call_reference(function, arguments, copies, sources)


def declared_call(backward: Callable[..., Any], args: tuple[Any, ...], sources: dict[str, str]) -> Any:
    """Call a declared backward, composites and Functions taken apart."""
    with composites_first(sources), functions_as_forwards():
        return backward(*args)
