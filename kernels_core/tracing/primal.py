"""The reference as a function of what is differentiated, and where its own operations end in a traced graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels_core.errors import TraceError
from kernels_core.program import Meta, Program
from kernels_core.tracing.arguments import Arguments, named_tensors, output_names
from kernels_core.tracing.complex_parts import (
    REAL,
    HasDtype,
    apart,
    differentiable,
    names_of_parts,
    part_names,
    together,
    whole_metas,
)
from kernels_core.tracing.graph import StandIn, nodes_so_far, to_graph
from kernels_core.tracing.late_inputs import late_input
from kernels_core.tracing.trace import call_in_place
from kernels_core.tracing.translation import to_program

Tensor = torch.Tensor


@dataclasses.dataclass
class Primal:
    """What the traces of one reference's derivatives share: its tensors, and where its forward ends.

    Attributes:
        forward: its program; None where that comes of the same trace as the derivative.
        flat: differentiate that program in place of the function itself.
        outputs: shape and dtype of the reference's own results, complex ones whole; known once it was called.
    """

    function: Callable[..., Any]
    arguments: Arguments
    wrt: Sequence[str]
    forward: Program | None
    flat: bool = False
    outputs: dict[str, Meta] = dataclasses.field(default_factory=dict)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    before: set[str] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        """Take the outputs of a known forward."""
        if self.forward is not None:
            self.outputs = whole_metas(self.forward.output_metas, self.forward.complex_outputs)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The reference's tensors by name."""
        return named_tensors(self.arguments)

    @property
    def floating(self) -> dict[str, Meta]:
        """The outputs that have derivatives."""
        return {n: m for n, m in self.outputs.items() if differentiable(m.dtype)}

    def complex_outputs(self) -> tuple[str, ...]:
        """Return the names of the complex ones among the reference's results."""
        return tuple(name for name, meta in self.outputs.items() if meta.dtype.is_complex)

    def chosen(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Return the tensors of these names."""
        return {name: self.tensors[name] for name in names}

    def primal(self, values: list[Tensor]) -> tuple[Callable[..., Any], list[Tensor]]:
        """Return the reference as a function of the differentiated tensors alone, and these."""
        given = together(self.tensors, values)

        def primal(*chosen: Tensor) -> Any:
            placed = {**given, **dict(zip(self.wrt, chosen, strict=True))}
            outputs = self._outputs(placed)
            if not self.floating:
                raise TraceError("no output of the reference has a derivative")
            return tuple(o for o in outputs if differentiable(o.dtype)), tuple(outputs)

        return primal, [given[name] for name in self.wrt]

    def _outputs(self, placed: Mapping[str, Tensor]) -> list[Tensor]:
        if self.flat and self.forward is not None:
            return list(together(self.outputs, list(self.forward.run(apart(placed)).values())).values())
        names, outputs = output_names(call_in_place(self.function, self.arguments, placed, self.sources))
        if self.forward is None:
            self.outputs = {n: Meta(tuple(o.shape), o.dtype) for n, o in zip(names, outputs, strict=True)}
        return outputs

    def forward_ends(self) -> None:
        """Remember that the nodes so far are the reference's own; later ones belong to the derivative."""
        self.before.clear()
        self.before.update(nodes_so_far())

    def cotangents(self) -> list[StandIn]:
        """Return stand-ins for the upstream gradients."""
        return self.stand_ins(self.floating)

    def late_cotangents(self) -> list[Tensor]:
        """Return the upstream gradients as late inputs, within a trace."""
        return [late_input(s.shape, s.dtype, s.device, number) for number, s in enumerate(self.cotangents())]

    def stand_ins(self, like: Mapping[str, Tensor] | Mapping[str, Meta]) -> list[StandIn]:
        """Return stand-ins for tensors like these, the parts of complex ones one by one."""
        device = next((t.device for t in self.tensors.values()), torch.device("cpu"))
        return [
            StandIn(tuple(meta.shape), REAL.get(meta.dtype, meta.dtype), device)
            for name, meta in like.items()
            for _ in part_names(name, meta)
        ]

    def program(
        self, function: Callable[..., Any], more: Sequence[list[StandIn]], inputs: list[str], names: list[str]
    ) -> Program:
        """Return the program of `function(values, *more)`."""
        return self.translated(self.graph(function, more), inputs, names)

    def translated(self, graph: torch.fx.GraphModule, inputs: list[str], names: Sequence[str | None]) -> Program:
        """Return the program of a graph, as `to_program`."""
        return to_program(graph, inputs, names, self.sources, self.before)

    def graph(self, function: Callable[..., Any], more: Sequence[list[StandIn]]) -> torch.fx.GraphModule:
        """Return the graph of `function(values, *more)`."""
        return without_repeats(
            to_graph(function, [list(apart(self.tensors).values()), *more], self.sources, self.before)
        )


def titled(like: Mapping[str, HasDtype], title: Callable[[str], str]) -> list[str]:
    """Return the names in a program of what belongs to these tensors: "grad_z.real" and "grad_z.imag" for "z"."""
    return names_of_parts({title(name): meta for name, meta in like.items()})


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
