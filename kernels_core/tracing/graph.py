"""From a function of tensors to a flat graph of ATen operations without mutation and without complex numbers.

`make_fx` over `functionalize` makes the graph. Operations without a rule are brought down to those with one by
PyTorch's decomposition tables. Tracing runs on fake tensors where the function allows it, on real ones where it
branches on values.

Source: torch.fx.experimental.proxy_tensor, torch.func, torch._decomp (PyTorch 2.13).
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._functorch import config as functorch_config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from kernels_core.decompositions.table import MORE
from kernels_core.errors import InvariantError, TraceError, described
from kernels_core.rules import registry
from kernels_core.tracing.arguments import Arguments, call_bound, named_tensors, with_tensors
from kernels_core.tracing.complex_numbers import WHOLE, has_complex
from kernels_core.tracing.followers import Follower, RealFollower
from kernels_core.tracing.light_pairs import light_pairs
from kernels_core.tracing.promotion import with_casts


class StandIn(NamedTuple):
    """A tensor whose values do not matter: it takes memory only where the function is traced on real tensors."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


Groups = Sequence[Sequence[torch.Tensor | StandIn]]
VALUE_FREE = "exactref_value_free"  # key of a graph's meta
_RUNS_NOTHING: contextvars.ContextVar[bool] = contextvars.ContextVar("runs_nothing", default=False)


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
    return {op: with_casts(op, rule) for op, rule in table.items() if str(op) not in rules and op not in WHOLE}


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Within this, functions are traced on fake tensors only: one that branches on values is a TraceError."""
    token = _RUNS_NOTHING.set(True)
    try:
        yield
    finally:
        _RUNS_NOTHING.reset(token)


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    """Within this, an LSTM is made of operations that have rules."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextlib.contextmanager
def _without_saved_tensor_hooks() -> Iterator[None]:
    """Within this, activation checkpointing is the function that it calls: torch.func takes no hooks."""
    hooks = torch.autograd.graph.saved_tensors_hooks
    with mock.patch.multiple(hooks, __enter__=mock.DEFAULT, __exit__=mock.Mock(return_value=None)):
        yield


@contextlib.contextmanager
def _caller_state_kept() -> Iterator[None]:
    logger = logging.getLogger("torch._subclasses.fake_tensor")  # logs a traceback for what becomes one message here
    before, logger.disabled = logger.disabled, True
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), _without_onednn(), _without_saved_tensor_hooks():
            yield
    finally:
        logger.disabled = before


def to_graph(function: Callable[..., Any], arguments: Groups, sources: dict[str, str],
             before: set[str]) -> torch.fx.GraphModule:  # fmt: skip
    """Return the traced graph without mutation; `sources` and `before` are kept in step with its node names."""
    graph = without_mutation(traced(function, arguments), arguments, sources, before)
    if not has_complex(graph):
        return graph
    with light_pairs():
        graph = _followed(RealFollower(graph), arguments, sources, before)
    return without_mutation(graph, arguments, sources, before)


def traced(function: Callable[..., Any], arguments: Groups, *, mutates: bool = True) -> torch.fx.GraphModule:
    """Return the graph of a function of groups of tensors as PyTorch traces it.

    Args:
        function: takes the groups.
        arguments: the groups.
        mutates: False where nothing works in place, so that nothing need be made functional.

    Raises:
        TraceError: it can be traced neither on fake tensors nor on real ones.
    """
    functional = torch.func.functionalize(function) if mutates else function
    with _caller_state_kept():
        try:
            return _traced_on_fake(functional, arguments)
        except TraceError:
            raise
        except Exception as fake_error:
            if _RUNS_NOTHING.get():
                raise TraceError("the reference cannot be traced without values") from fake_error
            try:
                return _traced_on_real(functional, arguments)
            except TraceError:
                raise
            except Exception as error:
                raise TraceError(_untraceable(error)) from fake_error


def _traced_on_fake(function: Callable[..., Any], arguments: Groups) -> torch.fx.GraphModule:
    with functorch_config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):  # as make_fx's own mode
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    with mode:
        fake = [[_zeros(t) if isinstance(t, StandIn) else mode.from_tensor(t.detach()) for t in g] for g in arguments]
    graph = make_fx(function, decomposition_table=_decompositions(), tracing_mode="fake")(*fake)
    graph.meta[VALUE_FREE] = True
    return _of_known_shapes(graph)


def _traced_on_real(function: Callable[..., Any], arguments: Groups) -> torch.fx.GraphModule:
    # Copies: the function may work in place, and an attempt on fake tensors may have called it before.
    copies = [[_zeros(t) if isinstance(t, StandIn) else t.detach().clone() for t in g] for g in arguments]
    return make_fx(
        function, decomposition_table=_decompositions(), tracing_mode="real", _error_on_data_dependent_ops=False
    )(*copies)


def _zeros(like: StandIn) -> torch.Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def without_mutation(
    graph: torch.fx.GraphModule, arguments: Groups, sources: dict[str, str], before: set[str]
) -> torch.fx.GraphModule:
    """Return the graph with the in-place operations of PyTorch's decompositions made functional; names are kept."""
    if not any(isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable for n in graph.graph.nodes):
        return graph
    return _followed(Follower(graph), arguments, sources, before)


def _followed(follower: Follower, arguments: Groups, sources: dict[str, str], before: set[str]) -> torch.fx.GraphModule:
    """Return the graph traced once more by a follower; names are kept."""
    again = traced(lambda *given: follower.run(*given), arguments, mutates=follower.mutates)
    found = {new: sources[old] for new, old in follower.origins.items() if old in sources}
    forward = {new for new, old in follower.origins.items() if old in before}
    sources.clear()
    sources.update(found)
    before.clear()
    before.update(forward)
    return again


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
    if any(words in str(error) for words in ("mutating a non-functional tensor", "would mutate a captured Tensor")):
        return (
            "the reference cannot be traced: it writes to a tensor that is none of its inputs\n"
            "give it as an input, or write to a copy of it; for a kernel that does so name a reference that does not"
        )
    return (
        f"the reference cannot be traced: {described(error).splitlines()[0]}\n"
        "give inputs that it takes; it is made of PyTorch operations, for a Triton, C++ or numpy kernel name another"
    )
