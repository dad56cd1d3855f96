"""The Functions behind some outputs: their nodes in the graph, and what their backwards really return.

The engine sums a gradient that is too large and casts one of another dtype before anybody sees it, so the backwards of
the Function classes are wrapped while they run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from kernels_core.tracing.standin import forward_of

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class RawGradient:
    """What one backward returned for one input that needs a gradient.

    Attributes:
        owner: name of the Function class.
        argument: name of the input in the forward.
        value: as returned.
        shape, dtype, device: of the input.
    """

    owner: str
    argument: str
    value: Any
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def function_nodes(outputs: Iterable[Tensor]) -> list[Any]:
    """Return the nodes of the kernel's Python Functions behind the outputs, each once."""
    pending = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen: dict[int, Any] = {}
    while pending:
        node = pending.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            pending += [before for before, _ in node.next_functions if before is not None]
    nodes = [node for node in seen.values() if hasattr(node, "_forward_cls")]
    return [node for node in nodes if not node._forward_cls.__module__.startswith("kernels_core.")]


@contextlib.contextmanager
def raw_gradients(outputs: Iterable[Tensor]) -> Iterator[list[RawGradient]]:
    """Within this, the backwards behind the outputs add what they return to the list."""
    found: list[RawGradient] = []
    classes = {node._forward_cls for node in function_nodes(outputs)}
    with contextlib.ExitStack() as stack:
        for cls in classes:
            stack.enter_context(_wrapped(cls, found))
        yield found


@contextlib.contextmanager
def _wrapped(cls: type[torch.autograd.Function], found: list[RawGradient]) -> Iterator[None]:
    name = "backward" if cls.vjp is torch.autograd.Function.vjp else "vjp"
    original, own = getattr(cls, name), name in vars(cls)
    kept = vars(cls).get(name)

    def spy(ctx: Any, *grads: Any) -> Any:
        returned = original(ctx, *grads)
        found.extend(_raw(cls, ctx, returned if isinstance(returned, tuple) else (returned,)))
        return returned

    setattr(cls, name, staticmethod(spy))
    try:
        yield
    finally:
        if own:
            setattr(cls, name, kept)
        else:
            delattr(cls, name)


def _raw(cls: type[torch.autograd.Function], node: Any, returned: tuple[Any, ...]) -> Iterator[RawGradient]:
    """Pair the returned gradients with the inputs: the edges of a node are those of its tensor inputs, in order."""
    edges = iter([edge for edge in node.next_functions if edge[0] is not None])
    for place, needed in enumerate(node.needs_input_grad):
        if needed:
            before, output = next(edges)
            like = before.variable if hasattr(before, "variable") else before._input_metadata[output]
            value = returned[place] if place < len(returned) else None
            yield RawGradient(
                cls.__name__, _argument(cls, place), value, tuple(like.shape), like.dtype, like.device
            )  # fmt: skip


def _argument(cls: type[torch.autograd.Function], place: int) -> str:
    names = list(inspect.signature(forward_of(cls)).parameters)
    return names[place] if place < len(names) else f"argument {place}"
