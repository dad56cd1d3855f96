"""Programs of derivatives: gradients, tangents, gradients of gradients, and gradients by a declared backward.

None is written by hand: `torch.func.vjp` and `torch.func.jvp` of the reference are traced like the reference itself,
so every step is one of PyTorch's own derivative formulas, and a vjp of the vjp gives double backward.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels_core.errors import TraceError, UnsupportedOperation
from kernels_core.program import Program
from kernels_core.rewrites.factored import with_factored
from kernels_core.rewrites.repeated_casts import with_repeated_casts
from kernels_core.tracing.arguments import Arguments, cotangent_name
from kernels_core.tracing.complex_parts import names_of_parts, together, values_apart
from kernels_core.tracing.composites import later_order
from kernels_core.tracing.declared_backward import trace_declared
from kernels_core.tracing.primal import Primal, titled

__all__ = [
    "load_forward_mode",
    "tangent_name",
    "trace_declared",
    "trace_double_backward",
    "trace_jvp",
    "trace_together",
    "trace_vjp",
]

Tensor = torch.Tensor


def tangent_name(name: str) -> str:
    """Return the name of the tangent of an input or output: "tangent_output" for "output"."""
    return f"tangent_{name}"


def trace_vjp(
    function: Callable[..., Any], arguments: Arguments, wrt: Sequence[str], forward: Program, *, flat: bool = False
) -> Program:
    """Return the program of outputs and gradients: inputs as `forward`, then "grad_output..." for the cotangents.

    Args:
        function: the reference.
        arguments: by name.
        wrt: names of the tensors to differentiate.
        forward: the program of the forward.
        flat: differentiate that program in place of the function; without this where PyTorch cannot differentiate the
            function because it writes to what its derivative needs, which a Function's forward may do.
    """
    try:
        return _trace_vjp(Primal(function, arguments, wrt, forward, flat))
    except TraceError as error:
        if flat or not writes_to_what_it_needs(error) or _own_operations(forward):
            raise
    return _trace_vjp(Primal(function, arguments, wrt, forward, flat=True))


def writes_to_what_it_needs(error: BaseException) -> bool:
    """Return True where PyTorch refused a derivative because a value that it reads was written to."""
    return "modified by an inplace operation" in str(error)


def trace_together(function: Callable[..., Any], arguments: Arguments, wrt: Sequence[str]) -> Program:
    """Return the program of outputs and gradients as `trace_vjp` does, by one trace that needs no forward.

    Raises:
        TraceError: it needs one, or there is none: no gradient, or an operation without a rule.
    """
    return _trace_vjp(Primal(function, arguments, wrt, None))


def _trace_vjp(traced: Primal) -> Program:
    def joint(values: list[Tensor]) -> Any:
        primal, chosen = traced.primal(values)
        _, pullback, outputs = torch.func.vjp(primal, *chosen, has_aux=True)  # type: ignore[misc]
        traced.forward_ends()
        upstream = traced.late_cotangents()
        found = pullback(tuple(together(traced.floating, upstream).values()))
        return values_apart(outputs, outputs), values_apart(found, chosen), upstream  # so that none of these is dropped

    graph = traced.graph(joint, [])
    late, gradients = titled(traced.floating, cotangent_name), titled(traced.chosen(traced.wrt), cotangent_name)
    names = [*names_of_parts(traced.outputs), *gradients, *[None] * len(late)]
    program = traced.translated(graph, [*names_of_parts(traced.tensors), *late], names)
    program = dataclasses.replace(program, complex_outputs=traced.complex_outputs())
    return with_factored(program, dict.fromkeys(gradients, 1))


def trace_jvp(
    function: Callable[..., Any], arguments: Arguments, wrt: Sequence[str], forward: Program, *, flat: bool = False
) -> Program:
    """Return the program of the tangents: inputs as `forward`, then "tangent_A..."; results "tangent_output...".

    Args:
        function: the reference.
        arguments: by name.
        wrt: names of the tensors that have a tangent.
        forward: the program of the forward.
        flat: differentiate that program in place of the function.
    """

    def traced(traced: Primal) -> Program:
        def pushed(values: list[Tensor], tangents: list[Tensor]) -> Any:
            primal, chosen = traced.primal(values)
            primal(*chosen)
            traced.forward_ends()
            given = tuple(together(traced.chosen(wrt), tangents).values())
            plain = tuple(one.contiguous() for one in chosen)  # as tangents are: PyTorch wants both in one layout
            _, found, _ = torch.func.jvp(primal, plain, given, has_aux=True)  # type: ignore[misc]
            return values_apart(found, found)

        names = titled(traced.floating, tangent_name)
        inputs = [*names_of_parts(traced.tensors), *titled(traced.chosen(wrt), tangent_name)]
        program = traced.program(pushed, [traced.stand_ins(traced.chosen(wrt))], inputs, names)
        return with_factored(program, dict.fromkeys(names, 1))

    load_forward_mode()
    flat = flat or any(step.name in _BREAKS_FORWARD_MODE for step in forward.steps)
    return _by_either_route(traced, Primal(function, arguments, wrt, forward), "forward mode", flat_only=flat)


@functools.cache
def load_forward_mode() -> None:
    """Import what PyTorch imports at the first use of forward mode: it warns of its own deprecated calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("torch._decomp.decompositions_for_jvp")


# PyTorch 2.13: an in-place lerp (in quantile, say) under functionalize in forward mode fails and leaves its dispatcher
# broken for the rest of the process. It leaves one of these behind; the flat forward has no in-place operations.
_BREAKS_FORWARD_MODE = frozenset({"aten.lerp.Tensor", "aten.lerp.Scalar", "aten.copy.default"})


def trace_double_backward(
    function: Callable[..., Any],
    arguments: Arguments,
    wrt: Sequence[str],
    given: Sequence[str],
    forward: Program,
    *,
    flat: bool = False,
) -> Program:
    """Return the program of the gradients of sum <v_X, grad_X> over the X in `given`.

    Inputs as `forward`, then "grad_output..." for the first upstream gradients, then "grad_grad_X" for the v_X.
    Results "grad_X" for every X in `wrt`, "grad_grad_output..." for every upstream gradient.

    Args:
        function: the reference.
        arguments: by name.
        wrt: names of the tensors to differentiate, in the first order and in the second.
        given: those of `wrt` whose gradient is differentiated again.
        forward: the program of the forward.
        flat: differentiate that program in place of the function.
    """

    def traced(traced: Primal) -> Program:

        def twice(values: list[Tensor], upstream: list[Tensor], second: list[Tensor]) -> Any:
            primal, chosen = traced.primal(values)

            def first(*inputs: Tensor) -> tuple[Tensor, ...]:
                _, pullback, _ = torch.func.vjp(primal, *inputs[: len(wrt)], has_aux=True)  # type: ignore[misc]
                traced.forward_ends()
                found = pullback(inputs[len(wrt) :])
                return tuple(grad for name, grad in zip(wrt, found, strict=True) if name in given)

            grads = tuple(together(traced.floating, upstream).values())
            _, again = torch.func.vjp(first, *chosen, *grads)  # type: ignore[misc]
            found = again(tuple(together(again_by, second).values()))
            return values_apart(found, (*chosen, *grads))

        again_by = traced.chosen([name for name in wrt if name in given])
        cotangents = titled(traced.floating, cotangent_name)
        orders = dict.fromkeys(titled(traced.chosen(wrt), cotangent_name), 2)
        orders |= {f"grad_{name}": 1 for name in cotangents}
        inputs = [*names_of_parts(traced.tensors), *cotangents]
        inputs += titled(again_by, lambda name: cotangent_name(f"grad_{name}"))
        more = [traced.cotangents(), traced.stand_ins(again_by)]
        return with_repeated_casts(with_factored(traced.program(twice, more, inputs, list(orders)), orders))

    return _by_either_route(traced, Primal(function, arguments, wrt, forward), "the second order", flat_only=flat)


def _own_operations(program: Program | None) -> list[str]:
    """Return the names of the operations that are ours, which PyTorch cannot differentiate."""
    return [step.name for step in (program.steps if program else ()) if step.name.startswith("exactref.")]


def _by_either_route(
    trace: Callable[[Primal], Program], traced: Primal, order: str, *, flat_only: bool = False
) -> Program:
    """Return the program by PyTorch's formulas for the reference's own operations, else for those with rules.

    An operation may have no formula of this order, where its decomposition has one.

    Raises:
        TraceError: neither has.
    """
    reason: TraceError | None = None
    own = _own_operations(traced.forward)
    for flat in (True,) if flat_only else (False, True):
        if flat and own:  # operations of ours have no derivative: autograd would take them for constants
            reason = reason or TraceError(f"{own[0]} cannot be differentiated again")
            continue
        try:
            with later_order():
                return trace(dataclasses.replace(traced, flat=flat))
        except UnsupportedOperation:
            raise
        except TraceError as error:
            reason = reason or error
    fact = str(reason).splitlines()[0].removeprefix("the reference cannot be traced: ")
    raise TraceError(
        f"PyTorch has no derivative for {order} of the reference: {fact}\n"
        "write the reference with other operations, or leave this check out"
    ) from reason
