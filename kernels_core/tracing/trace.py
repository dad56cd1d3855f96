"""From a PyTorch function to a program, and to the program of its derivative.

`make_fx` over `functionalize` gives a flat graph of ATen operations without mutation; `torch.func.vjp` traced the same
way gives PyTorch's own derivative of the reference, operation by operation. Operations without a rule are brought down
to those with one by PyTorch's decomposition tables. Tracing runs on fake tensors where the function allows it, on real
ones where it branches on values.

Source: torch.fx.experimental.proxy_tensor, torch.func, torch._decomp (PyTorch 2.13).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.overrides
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.utils import _pytree as pytree

from kernels_core.decompositions.table import MORE
from kernels_core.errors import InvariantError, TraceError, UnsupportedOperation
from kernels_core.program import Meta, Program, Ref, Step, without_dead_steps
from kernels_core.rewrites.accumulation import with_accumulations
from kernels_core.rewrites.determinant import with_determinants
from kernels_core.rewrites.extremum_masks import with_extremum_weights
from kernels_core.rewrites.relu_masks import with_relu_arguments
from kernels_core.rules import registry
from kernels_core.tracing.complex_numbers import WHOLE, as_parts, has_complex, has_complex_value, real_call
from kernels_core.tracing.complex_parts import apart, together
from kernels_core.tracing.composites import composites_first, lines_of_operations
from kernels_core.tracing.remembered import forgotten
from kernels_core.tracing.standin import functions_as_forwards, refuses_leaves

Arguments = Mapping[str, Any]
_VALUE_FREE = "exactref_value_free"  # key of a graph's meta
_RUNS_NOTHING: contextvars.ContextVar[bool] = contextvars.ContextVar("runs_nothing", default=False)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function; PyTorch's own functions have theirs in its override table (without `out`)."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        table = torch.overrides.get_testing_overrides()
        if function not in table:
            raise TraceError(f"{function} has no signature\nwrap it in a function with named parameters") from None
        parameters = inspect.signature(table[function]).parameters.values()
        return inspect.Signature([p for p in parameters if p.name != "out"])


def bind(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names of the function's signature, defaults left out.

    Variadic arguments are named after their parameter: "tensors[0]", "tensors[1]".
    """
    signature = signature_of(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TraceError(
            f"arguments do not fit {getattr(function, '__name__', function)}{signature}: {error}"
        ) from None
    return dict(bound.arguments)


def call_bound(function: Callable[..., Any], arguments: Arguments) -> Any:
    """Call `function` with arguments by name, positional where its signature wants that."""
    bound = signature_of(function).bind_partial()
    bound.arguments.update(arguments)
    return function(*bound.args, **bound.kwargs)


def with_defaults(function: Callable[..., Any], arguments: Arguments) -> dict[str, Any]:
    """Return the arguments with the defaults of those left out, in the order of the signature."""
    bound = signature_of(function).bind_partial()
    bound.arguments.update(arguments)
    bound.apply_defaults()
    return dict(bound.arguments)


def named_tensors(arguments: Arguments) -> dict[str, torch.Tensor]:
    """Return the tensors among the arguments, nested ones as "x[0]" or "x['k']"."""
    found = {}
    for name, value in arguments.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                found[name + pytree.keystr(path)] = leaf
    return found


def with_tensors(arguments: Arguments, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the arguments with the named tensors put in place (the inverse of `named_tensors`)."""
    return {
        name: pytree.tree_map_with_path(
            lambda path, leaf, name=name: tensors.get(name + pytree.keystr(path), leaf), value
        )
        for name, value in arguments.items()
    }


def output_names(result: Any) -> tuple[list[str], list[torch.Tensor]]:
    """Return names and tensors of a function's result: "output", "output[0]", "output['k']"; others are left out."""
    paths, _ = pytree.tree_flatten_with_path(result)
    named = [("output" + pytree.keystr(path), leaf) for path, leaf in paths if isinstance(leaf, torch.Tensor)]
    return [name for name, _ in named], [leaf for _, leaf in named]


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


def cotangent_name(result: str) -> str:
    """Return the input name of a result's upstream gradient: "grad_output[1]" for "output[1]"."""
    return f"grad_{result}"


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
    graph = _without_mutation(_traced(call, arguments, mutates=not as_it_runs), arguments, sources, before)
    translation = _Translation(graph, list(floating), list(names), sources, None)
    translation.every_operation = True
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


def nodes_so_far() -> set[str]:
    """Return the names of the nodes that the active tracer has made."""
    mode = get_proxy_mode()
    if mode is None:
        raise InvariantError("no tracer is active")
    return {node.name for node in mode.tracer.graph.nodes}


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    rules = registry()
    table = {**torch._decomp.decomposition_table, **MORE}
    return {op: rule for op, rule in table.items() if str(op) not in rules and op not in WHOLE}


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Within this, functions are traced on fake tensors only: one that branches on values is a TraceError."""
    token = _RUNS_NOTHING.set(True)
    try:
        yield
    finally:
        _RUNS_NOTHING.reset(token)


@contextlib.contextmanager
def _caller_state_kept() -> Iterator[None]:
    logger = logging.getLogger("torch._subclasses.fake_tensor")  # logs a traceback for what becomes one message here
    before, logger.disabled = logger.disabled, True
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            yield
    finally:
        logger.disabled = before


def to_graph(function: Callable[..., Any], arguments: list[list[torch.Tensor]], sources: dict[str, str],
             before: set[str]) -> torch.fx.GraphModule:  # fmt: skip
    """Return the traced graph without mutation; `sources` and `before` are kept in step with its node names."""
    graph = _traced(function, arguments)
    if has_complex(graph):
        graph = _followed(_RealFollower(graph), arguments, sources, before)
    return _without_mutation(graph, arguments, sources, before)


def _traced(
    function: Callable[..., Any], arguments: list[list[torch.Tensor]], *, mutates: bool = True
) -> torch.fx.GraphModule:
    plain = [[t.detach() for t in group] for group in arguments]
    functional = torch.func.functionalize(function) if mutates else function
    options: dict[str, Any] = {"decomposition_table": _decompositions()}
    with _caller_state_kept():
        try:
            graph = make_fx(functional, tracing_mode="fake", _allow_non_fake_inputs=True, **options)(*plain)
            graph.meta[_VALUE_FREE] = True
            return _of_known_shapes(graph)
        except TraceError:
            raise
        except Exception as fake_error:
            if _RUNS_NOTHING.get():
                raise TraceError("the reference cannot be traced without values") from fake_error
            try:
                copies = [[t.clone() for t in group] for group in plain]  # the function may work in place
                return make_fx(functional, tracing_mode="real", _error_on_data_dependent_ops=False, **options)(*copies)
            except TraceError:
                raise
            except Exception as error:
                raise TraceError(_untraceable(error)) from fake_error


def _without_mutation(
    graph: torch.fx.GraphModule, arguments: list[list[torch.Tensor]], sources: dict[str, str], before: set[str]
) -> torch.fx.GraphModule:
    """Return the graph with the in-place operations of PyTorch's decompositions made functional; names are kept."""
    if not any(isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable for n in graph.graph.nodes):
        return graph
    return _followed(_Follower(graph), arguments, sources, before)


def _followed(
    follower: _Follower, arguments: list[list[torch.Tensor]], sources: dict[str, str], before: set[str]
) -> torch.fx.GraphModule:
    """Return the graph traced once more by a follower; names are kept."""
    again = _traced(lambda *given: follower.run(*given), arguments, mutates=follower.mutates)
    found = {new: sources[old] for new, old in follower.origins.items() if old in sources}
    forward = {new for new, old in follower.origins.items() if old in before}
    sources.clear()
    sources.update(found)
    before.clear()
    before.update(forward)
    return again


class _Follower(torch.fx.Interpreter):
    """Runs a graph under a tracer and remembers which node each new node came from."""

    mutates = True

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.origins: dict[str, str] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        mode = get_proxy_mode()
        if mode is not None:
            for new in reversed(mode.tracer.graph.nodes):
                if new.name in self.origins:
                    break
                self.origins[new.name] = n.name
        return result


class _RealFollower(_Follower):
    """Runs a graph with every complex value as two real ones; ComplexTensors cannot be functionalized."""

    mutates = False

    def run_node(self, n: torch.fx.Node) -> Any:
        self.complex_result = has_complex_value(n)
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return as_parts(super().get_attr(target, args, kwargs))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return real_call(target, args, dict(kwargs), self.complex_result)


def _of_known_shapes(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return the graph where no shape depends on values; the others are traced on real tensors.

    Raises:
        ValueError: a shape depends on values.
    """
    for node in graph.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
            if any(isinstance(size, torch.SymInt) for size in sizes):
                raise ValueError(f"the shape of {node.name} depends on values")
    return graph


def _require_plain_memory(node: torch.fx.Node) -> None:
    """Refuse `as_strided` of a tensor that is not the whole of its memory: it reads what is no input of the program."""
    given = node.args[0].meta.get("val") if isinstance(node.args[0], torch.fx.Node) else None
    if isinstance(given, torch.Tensor) and not (given.is_contiguous() and given.storage_offset() == 0):
        raise TraceError(
            "as_strided reads the memory behind a tensor that is a view\nuse slices, or as_strided of a contiguous one"
        )


def require_callable(function: Callable[..., Any], arguments: Arguments) -> None:
    """Call the reference itself: fake tensors take arguments that PyTorch's kernels refuse (a dimension, a dtype).

    Raises:
        TraceError: the call fails.
    """
    try:
        copies = {name: t.detach().clone() for name, t in named_tensors(arguments).items()}
        with _caller_state_kept(), torch.no_grad():
            call_bound(function, with_tensors(arguments, copies))
    except Exception as error:
        raise TraceError(_untraceable(error)) from error


def _untraceable(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return (
        f"the reference cannot be traced: {type(error).__name__}: {lines[0]}\n"
        "a reference is made of PyTorch operations on tensors; for a Triton, C++ or numpy kernel name a reference"
    )


def to_program(
    graph: torch.fx.GraphModule,
    inputs: list[str],
    names: list[str],
    sources: Mapping[str, str],
    forward: set[str] | None = None,
) -> Program:
    """Return the program of a graph; nodes not in `forward` (where given) belong to the derivative."""
    program = without_dead_steps(_Translation(graph, inputs, names, sources, forward).program())
    program = with_determinants(with_relu_arguments(with_extremum_weights(program)))
    program = with_accumulations(program)
    return dataclasses.replace(program, value_free=graph.meta.get(_VALUE_FREE, False))


class _Translation:
    """Turns an fx graph into our own steps.

    Attributes:
        every_operation: True where operations without a rule are taken too: the program is replayed, not bounded.
    """

    every_operation = False

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        inputs: list[str],
        names: list[str],
        sources: Mapping[str, str],
        forward: set[str] | None,
    ) -> None:
        self.graph, self.names, self.sources, self.forward = graph, names, sources, forward
        self.pending = list(inputs)
        self.refs: dict[torch.fx.Node, Any] = {}
        self.steps: list[Step] = []
        self.inputs: dict[str, int] = {}
        self.constants: dict[int, torch.Tensor] = {}
        self.outputs: list[Any] = []

    def program(self) -> Program:
        for node in self.graph.graph.nodes:
            getattr(self, f"_{node.op}")(node)
        outputs, metas = {}, {}
        for name, ref in zip(self.names, self.outputs, strict=True):
            outputs[name] = ref if isinstance(ref, Ref) else None
            if isinstance(ref, Ref):
                meta = self.steps[ref.step].metas[ref.output]
                if meta is None:
                    raise InvariantError(f"{name} is not a tensor")
                metas[name] = meta
        return Program(tuple(self.steps), self.inputs, self.constants, outputs, metas)

    def _add(self, **fields: Any) -> Ref:
        self.steps.append(Step(number=len(self.steps), **fields))
        return Ref(len(self.steps) - 1)

    def _placeholder(self, node: torch.fx.Node) -> None:
        name = self.pending.pop(0)
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
        step = Step(0, None, name, _plain(args), _plain(kwargs), ())
        operands = tuple(self.steps[ref.step].metas[ref.output] for ref in step.operands)
        self.refs[node] = self._add(
            op=node.target, name=name, args=step.args, kwargs=step.kwargs, metas=_metas(node), source=source,
            backward=self.forward is not None and node.name not in self.forward, operand_metas=operands,
        )  # fmt: skip

    def _output(self, node: torch.fx.Node) -> None:
        leaves = pytree.tree_leaves(node.args[0], is_leaf=lambda x: x is None)
        self.outputs = [self.refs.get(leaf) if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]


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
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "a reference cannot draw random numbers: give the mask or the noise as an input"
    if torch.Tag.data_dependent_output in op.tags or torch.Tag.dynamic_output_shape in op.tags:
        return "a reference cannot depend on values in its shapes: give them as inputs"
    return ""
