"""From a traced graph to a program: one step per operation, each with a rule or named in an error."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernels_core.errors import InvariantError, TraceError, UnsupportedOperation
from kernels_core.program import Meta, Program, Ref, Step, replace_refs, without_dead_steps
from kernels_core.rewrites.accumulation import with_accumulations
from kernels_core.rewrites.determinant import with_determinants
from kernels_core.rewrites.extremum_masks import with_extremum_weights
from kernels_core.rewrites.relu_masks import with_relu_arguments
from kernels_core.rewrites.reused_factors import with_systems
from kernels_core.rewrites.scattered_extrema import with_attained_extrema
from kernels_core.rewrites.zero_signs import with_free_zeros
from kernels_core.rules import registry
from kernels_core.tracing.graph import VALUE_FREE
from kernels_core.tracing.late_inputs import LATE_INPUT
from kernels_core.tracing.promotion import casts


def to_program(
    graph: torch.fx.GraphModule,
    inputs: list[str],
    names: Sequence[str | None],
    sources: Mapping[str, str],
    forward: set[str] | None = None,
) -> Program:
    """Return the program of a graph, with what no result needs left out and its patterns rewritten.

    Args:
        graph: flat, of ATen operations.
        inputs: names of its placeholders, in order, and of its late inputs.
        names: of its results, in order, None for one that is no result; a result that is None has no gradient.
        sources: the user's line by node name.
        forward: names of the nodes that are the reference's own, the others belong to its derivative; None for all.

    Raises:
        TraceError: an operation has no rule, or works on what is no tensor.
    """
    program = without_dead_steps(Translation(graph, inputs, names, sources, forward).program())
    program = with_determinants(with_relu_arguments(with_attained_extrema(with_extremum_weights(program))))
    program = with_free_zeros(with_accumulations(with_systems(program)))
    return dataclasses.replace(program, value_free=graph.meta.get(VALUE_FREE, False))


aten = torch.ops.aten


class Translation:
    """Turns an fx graph into our own steps.

    Attributes:
        every_operation: True where operations without a rule are taken too: the program is replayed, not bounded.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        inputs: list[str],
        names: Sequence[str | None],
        sources: Mapping[str, str],
        forward: set[str] | None = None,
        *,
        every_operation: bool = False,
    ) -> None:
        """Name the inputs and results of a graph; arguments as in `to_program`."""
        self.graph, self.names, self.sources, self.forward = graph, names, sources, forward
        self.every_operation = every_operation
        self.pending = list(inputs)
        self.refs: dict[torch.fx.Node, Any] = {}
        self.steps: list[Step] = []
        self.inputs: dict[str, int] = {}
        self.constants: dict[int, torch.Tensor] = {}
        self.outputs: list[Any] = []

    def program(self) -> Program:
        """Return the program: a step for each node, those that nothing needs included."""
        for node in self.graph.graph.nodes:
            getattr(self, f"_{node.op}")(node)
        outputs, metas = {}, {}
        for name, ref in zip(self.names, self.outputs, strict=True):
            if name is None:
                continue
            outputs[name] = ref if isinstance(ref, Ref) else None
            if isinstance(ref, Ref):
                meta = self.steps[ref.step].metas[ref.output]
                if meta is None:
                    raise InvariantError(f"{name} is not a tensor")
                metas[name] = meta
        inputs_first = sorted(self.steps, key=lambda step: step.name != "input")
        return Program(tuple(inputs_first), self.inputs, self.constants, outputs, metas)

    def _add(self, **fields: Any) -> Ref:
        self.steps.append(Step(number=len(self.steps), **fields))
        return Ref(len(self.steps) - 1)

    def _placeholder(self, node: torch.fx.Node) -> None:
        self._input(node, self.pending.pop(0))

    def _input(self, node: torch.fx.Node, name: str) -> None:
        ref = self._add(op=None, name="input", args=(), kwargs={}, metas=_metas(node))
        self.inputs[name], self.refs[node] = ref.step, ref

    def _get_attr(self, node: torch.fx.Node) -> None:
        value = operator.attrgetter(str(node.target))(self.graph)
        meta = Meta(tuple(value.shape), value.dtype)
        ref = self._add(op=None, name="constant", args=(), kwargs={}, metas=(meta,))
        self.constants[ref.step], self.refs[node] = value.detach(), ref

    def _call_function(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            self.refs[node] = Ref(self.refs[node.args[0]].step, node.args[1])  # type: ignore[index,arg-type]
            return
        if not node.users:  # values that Python read to choose its branch, and what nothing needs
            return
        name = str(node.target)
        if name == LATE_INPUT:
            self._input(node, self.pending[node.args[-1]])  # type: ignore[index]
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            raise TraceError(
                f"the reference calls {name} on a value that is not a tensor\nuse tensors or plain numbers"
            )
        source = self.sources.get(node.name, "")
        if name.startswith("aten.as_strided"):
            _require_plain_memory(node)
        if not self.every_operation and name not in registry():
            raise UnsupportedOperation(name, source, _hint(node.target))
        args = torch.fx.node.map_arg(node.args, lambda n: self.refs[n])
        kwargs = torch.fx.node.map_arg(node.kwargs, lambda n: self.refs[n])
        place: dict[str, Any] = {
            "source": source,
            "backward": self.forward is not None and node.name not in self.forward,
        }
        step = self._promoted(Step(0, node.target, name, _plain(args), _plain(kwargs), _metas(node), **place))
        self.refs[node] = self._add(
            op=node.target, name=name, args=step.args, kwargs=step.kwargs, metas=step.metas,
            operand_metas=self._metas_of(step), **place,
        )  # fmt: skip

    def _metas_of(self, step: Step) -> tuple[Meta, ...]:
        return tuple(self.steps[ref.step].metas[ref.output] for ref in step.operands)  # type: ignore[misc]

    def _promoted(self, step: Step) -> Step:
        """Return the step with the casts that PyTorch makes inside of it as steps of their own (promotion.py)."""
        if self.every_operation:
            return step
        metas, found = self._metas_of(step), {}
        for ref, meta, dtype in zip(step.operands, metas, casts(step.op, metas), strict=True):
            if dtype is None or ref in found:
                continue
            found[ref] = self._add(
                op=aten._to_copy.default, name="aten._to_copy.default", args=(ref,), kwargs={"dtype": dtype},
                metas=(Meta(meta.shape, dtype),), operand_metas=(meta,), source=step.source, backward=step.backward,
            )  # fmt: skip
        if not found:
            return step
        args, kwargs = (replace_refs(tree, lambda ref: found.get(ref, ref)) for tree in (step.args, dict(step.kwargs)))
        return dataclasses.replace(step, args=args, kwargs=kwargs)

    def _output(self, node: torch.fx.Node) -> None:
        leaves = pytree.tree_leaves(node.args[0], is_leaf=lambda x: x is None)
        self.outputs = [self.refs.get(leaf) if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]


def _require_plain_memory(node: torch.fx.Node) -> None:
    """Refuse `as_strided` of a tensor that is not the whole of its memory: it reads what is no input of the program."""
    given = node.args[0].meta.get("val") if isinstance(node.args[0], torch.fx.Node) else None
    if isinstance(given, torch.Tensor) and not (given.is_contiguous() and given.storage_offset() == 0):
        raise TraceError(
            "as_strided reads the memory behind a tensor that is a view\nuse slices, or as_strided of a contiguous one"
        )


def _plain(tree: Any) -> Any:
    """Return fx's immutable lists and dicts as plain ones."""
    if isinstance(tree, Ref):
        return tree
    if isinstance(tree, tuple):
        return tuple(_plain(item) for item in tree)
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    if isinstance(tree, dict):
        return {key: _plain(item) for key, item in tree.items()}
    return tree


def _metas(node: torch.fx.Node) -> tuple[Meta | None, ...]:
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    values = value if isinstance(value, (tuple, list)) and not hasattr(value, "dtype") else (value,)
    return tuple(
        None if v is None or not hasattr(v, "dtype") else Meta(tuple(int(n) for n in v.shape), v.dtype) for v in values
    )


def _hint(op: Any) -> str:
    if "sparse" in op.name():
        return "sparse tensors are not supported: name a reference that computes with dense ones"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "a reference cannot draw random numbers: give the mask or the noise as an input"
    if torch.Tag.data_dependent_output in op.tags or torch.Tag.dynamic_output_shape in op.tags:
        return "a reference cannot depend on values in its shapes: give them as inputs"
    return ""
