"""Programs of derivatives: gradients, tangents, gradients of gradients, and gradients by a declared backward.

None is written by hand: `torch.func.vjp` and `torch.func.jvp` of the reference are traced like the reference itself,
so every step is one of PyTorch's own derivative formulas, and a vjp of the vjp gives double backward.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels_core.errors import TraceError, UnsupportedOperation
from kernels_core.program import Meta, Program, Ref, Step
from kernels_core.tracing.complex_parts import (
    HasDtype,
    apart,
    differentiable,
    names_of_parts,
    together,
    values_apart,
    whole_metas,
)
from kernels_core.tracing.trace import (
    Arguments,
    call_in_place,
    cotangent_name,
    declared_call,
    named_tensors,
    nodes_so_far,
    output_names,
    to_graph,
    to_program,
    with_defaults,
    with_tensors,
)

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
        forward: the program of the forward, for the shapes of the cotangents.
        flat: differentiate that program in place of the function.
    """
    traced = _Traced(function, arguments, wrt, forward, flat)

    def joint(values: list[Tensor], upstream: list[Tensor]) -> Any:
        primal, chosen = traced.primal(values)
        _, pullback, outputs = torch.func.vjp(primal, *chosen, has_aux=True)  # type: ignore[misc]
        traced.forward_ends()
        found = pullback(tuple(together(traced.floating, upstream).values()))
        return values_apart(outputs, outputs), values_apart(found, chosen)

    names = [*forward.outputs, *_titled(traced.chosen(wrt), cotangent_name)]
    inputs = [*names_of_parts(traced.tensors), *_titled(traced.floating, cotangent_name)]
    program = traced.program(joint, [traced.cotangents()], inputs, names)
    return with_factored(program, {name: 1 for name in names if name.startswith("grad_")})


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

    def traced(traced: _Traced) -> Program:
        def pushed(values: list[Tensor], tangents: list[Tensor]) -> Any:
            primal, chosen = traced.primal(values)
            primal(*chosen)
            traced.forward_ends()
            given = tuple(together(traced.chosen(wrt), tangents).values())
            _, found, _ = torch.func.jvp(primal, tuple(chosen), given, has_aux=True)  # type: ignore[misc]
            return values_apart(found, found)

        names = _titled(traced.floating, tangent_name)
        inputs = [*names_of_parts(traced.tensors), *_titled(traced.chosen(wrt), tangent_name)]
        program = traced.program(pushed, [traced.zeros(traced.chosen(wrt))], inputs, names)
        return with_factored(program, dict.fromkeys(names, 1))

    load_forward_mode()
    flat = flat or any(step.name in _BREAKS_FORWARD_MODE for step in forward.steps)
    return _by_either_route(traced, _Traced(function, arguments, wrt, forward), "forward mode", flat_only=flat)


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

    def traced(traced: _Traced) -> Program:

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
        cotangents = _titled(traced.floating, cotangent_name)
        orders = dict.fromkeys(_titled(traced.chosen(wrt), cotangent_name), 2)
        orders |= {f"grad_{name}": 1 for name in cotangents}
        inputs = [*names_of_parts(traced.tensors), *cotangents]
        inputs += _titled(again_by, lambda name: cotangent_name(f"grad_{name}"))
        more = [traced.cotangents(), traced.zeros(again_by)]
        return with_factored(traced.program(twice, more, inputs, list(orders)), orders)

    return _by_either_route(traced, _Traced(function, arguments, wrt, forward), "the second order", flat_only=flat)


def _by_either_route(
    trace: Callable[[_Traced], Program], traced: _Traced, order: str, *, flat_only: bool = False
) -> Program:
    """Return the program by PyTorch's formulas for the reference's own operations, else for those with rules.

    An operation may have no formula of this order, where its decomposition has one.

    Raises:
        TraceError: neither has.
    """
    reason: TraceError | None = None
    own = [step.name for step in traced.forward.steps if step.name.startswith("exactref.")]
    for flat in (True,) if flat_only else (False, True):
        if flat and own:  # operations of ours have no derivative: autograd would take them for constants
            reason = reason or TraceError(f"{own[0]} cannot be differentiated again")
            continue
        try:
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
    traced = _Traced(function, arguments, wrt, forward)
    tensors, sources = traced.tensors, traced.sources
    complete = with_defaults(function, arguments)

    def declared(values: list[Tensor], stored: list[Tensor], upstream: list[Tensor]) -> Any:
        placed = with_tensors(complete, together(tensors, values))
        given, grads = together(traced.outputs, stored), together(traced.floating, upstream)
        args = (tuple(placed.values()), tuple(given.values()), tuple(grads.values()))
        found = _gradients_in_order(declared_call(backward, args, sources), tensors, wrt)
        _require_kinds(found, traced.chosen(wrt))
        return values_apart(found, [tensors[name] for name in wrt])

    more = [traced.zeros(traced.outputs), traced.cotangents()]
    graph = to_graph(declared, [list(apart(tensors).values()), *more], sources, set())
    inputs = [*names_of_parts(tensors), *forward.outputs, *_titled(traced.floating, cotangent_name)]
    return to_program(graph, inputs, _titled(traced.chosen(wrt), cotangent_name), sources, set())


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


def _titled(like: Mapping[str, HasDtype], title: Callable[[str], str]) -> list[str]:
    """Return the names in a program of what belongs to these tensors: "grad_z.real" and "grad_z.imag" for "z"."""
    return names_of_parts({title(name): meta for name, meta in like.items()})


@dataclasses.dataclass
class _Traced:
    """What the traces of one reference's derivatives share: its tensors, and where its forward ends.

    `flat`: differentiate the program of the forward in place of the function itself.
    """

    function: Callable[..., Any]
    arguments: Arguments
    wrt: Sequence[str]
    forward: Program
    flat: bool = False
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    before: set[str] = dataclasses.field(default_factory=set)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The reference's tensors by name."""
        return named_tensors(self.arguments)

    @property
    def floating(self) -> dict[str, Meta]:
        """The outputs that have derivatives."""
        return {n: m for n, m in self.outputs.items() if differentiable(m.dtype)}

    @property
    def outputs(self) -> dict[str, Meta]:
        """Shape and dtype of the reference's own results, complex ones whole."""
        return whole_metas(self.forward.output_metas, self.forward.complex_outputs)

    def chosen(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Return the tensors of these names."""
        return {name: self.tensors[name] for name in names}

    def primal(self, values: list[Tensor]) -> tuple[Callable[..., Any], list[Tensor]]:
        """Return the reference as a function of the differentiated tensors alone, and these."""
        given = together(self.tensors, values)

        def primal(*chosen: Tensor) -> Any:
            placed = {**given, **dict(zip(self.wrt, chosen, strict=True))}
            outputs = self._outputs(placed)
            return tuple(o for o in outputs if differentiable(o.dtype)), tuple(outputs)

        return primal, [given[name] for name in self.wrt]

    def _outputs(self, placed: Mapping[str, Tensor]) -> list[Tensor]:
        if self.flat:
            return list(together(self.outputs, list(self.forward.run(apart(placed)).values())).values())
        return output_names(call_in_place(self.function, self.arguments, placed, self.sources))[1]

    def forward_ends(self) -> None:
        """Remember that the nodes so far are the reference's own; later ones belong to the derivative."""
        self.before.clear()
        self.before.update(nodes_so_far())

    def cotangents(self) -> list[Tensor]:
        """Return stand-ins for the upstream gradients."""
        return self.zeros(self.floating)

    def zeros(self, like: Mapping[str, Tensor] | Mapping[str, Meta]) -> list[Tensor]:
        """Return stand-ins for tensors like these, the parts of complex ones one by one."""
        device = next((t.device for t in self.tensors.values()), torch.device("cpu"))
        return list(apart({n: torch.zeros(m.shape, dtype=m.dtype, device=device) for n, m in like.items()}).values())

    def program(
        self, function: Callable[..., Any], more: list[list[Tensor]], inputs: list[str], names: list[str]
    ) -> Program:
        """Return the program of `function(values, *more)`."""
        graph = to_graph(function, [list(apart(self.tensors).values()), *more], self.sources, self.before)
        return to_program(without_repeats(graph), inputs, names, self.sources, self.before)


_IDENTITIES = frozenset({torch.ops.aten.alias.default, torch.ops.aten.detach.default})


def without_repeats(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return the graph where each node that computes what an earlier one has computed gives way to that one.

    A program of tangents runs the reference twice: once alone, which tells its own operations from those of the
    derivative, and once with tangents.
    """
    seen: dict[Any, torch.fx.Node] = {}
    for node in graph.graph.nodes:
        if node.target in _IDENTITIES:
            node.replace_all_uses_with(node.args[0])
        elif node.op == "call_function":
            first = seen.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
            if first is not node:
                node.replace_all_uses_with(first)
    return graph


def with_factored(program: Program, roundings: Mapping[str, int]) -> Program:
    """Let results end in the step that grants the factoring of what they are linear in (rules/arithmetic.py).

    Args:
        program: of derivatives.
        roundings: how many factors each result has: one for a gradient (the upstream) or tangent, two for the second
            order (the upstreams of both orders).
    """
    steps, outputs = list(program.steps), dict(program.outputs)
    numbered = {step.number: step for step in steps}
    number = max(numbered, default=-1) + 1
    for name, count in roundings.items():
        ref = program.outputs[name]
        if ref is None or numbered[ref.step].op is None:
            continue
        step, meta = numbered[ref.step], program.output_metas[name]
        narrowed = step.name == "aten._to_copy.default" and step.operand_metas[0].dtype.is_floating_point
        settings = {"compute": step.operand_metas[0].dtype if narrowed else meta.dtype, "roundings": count}
        steps.append(Step(number, lambda a, compute, roundings: a, "exactref.factored", (ref,), settings, (meta,),
                          step.source, True, (meta,)))  # fmt: skip
        outputs[name] = Ref(number)
        number += 1
    return dataclasses.replace(program, steps=tuple(steps), outputs=outputs)
