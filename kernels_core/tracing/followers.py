"""Graphs that are traced once more while they run, node by node, so that every new node knows its origin."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.complex_tensor._core import ComplexTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from kernels_core.errors import UnsupportedOperation
from kernels_core.tracing.complex_numbers import READS_MEMORY, as_parts, has_complex_value, real_call


class Follower(torch.fx.Interpreter):
    """Runs a graph under a tracer and remembers which node each new node came from.

    Attributes:
        origins: name of the node that was run, by name of the node that came of it.
        mutates: True where the graph may have operations that work in place.
    """

    mutates = True

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        """Follow this graph."""
        super().__init__(graph)
        self.extra_traceback = False  # what is raised says where it is from by itself
        self.origins: dict[str, str] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run the node; the nodes that this makes come from it."""
        result = super().run_node(n)
        mode = get_proxy_mode()
        if mode is not None:
            for new in reversed(mode.tracer.graph.nodes):
                if new.name in self.origins:
                    break
                self.origins[new.name] = n.name
        return result


def _lies_otherwise(value: Any, node: Any) -> bool:
    """Return True for a complex tensor whose parts have other strides than it has in the graph."""
    known = node.meta.get("val") if isinstance(value, ComplexTensor) else None
    return known is not None and value.re.stride() != known.stride()


class RealFollower(Follower):
    """Runs a graph with every complex value as two real ones; ComplexTensors cannot be functionalized."""

    mutates = False

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run the node and remember whether its value is complex in the graph."""
        self.node, self.complex_result = n, has_complex_value(n)
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return a constant of the graph, in parts where it is complex."""
        return as_parts(super().get_attr(target, args, kwargs))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return the operation's value by real operations.

        Raises:
            UnsupportedOperation: it has none, or it reads the memory of a complex tensor whose parts lie otherwise.
        """
        if target in READS_MEMORY and _lies_otherwise(args[0], self.node.args[0]):
            raise UnsupportedOperation(str(target), "", "write to a contiguous complex tensor, or make a new one")
        return real_call(target, args, dict(kwargs), self.complex_result)
