"""A Function's own forward as a plain PyTorch function: a stand-in ctx, and nested `apply` calls taken the same way.

The forward of a `torch.autograd.Function` runs outside of autograd, so its PyTorch operations can be traced and
differentiated when it is called with a ctx that only remembers. Both styles are supported: `forward(ctx, ...)` and
`forward(...)` with `setup_context`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import torch


class StandInContext:
    """What a forward may do with its ctx, without effect: attributes are kept, declarations are accepted."""

    def __init__(self, count: int) -> None:
        """Pretend that every one of `count` inputs needs a gradient."""
        self.needs_input_grad = (True,) * count
        self.saved_tensors: tuple[Any, ...] = ()
        self.non_differentiable: tuple[torch.Tensor, ...] = ()
        self.dirty_tensors: tuple[torch.Tensor, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep the tensors."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep nothing: forward mode is traced, not called."""

    def mark_dirty(self, *tensors: torch.Tensor) -> None:
        """Remember which inputs are changed in place."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        """Remember which outputs carry no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Accept either."""


def is_function_class(function: Any) -> TypeGuard[type[torch.autograd.Function]]:
    """Return True for a `torch.autograd.Function` class, which is called through `apply`."""
    return isinstance(function, type) and issubclass(function, torch.autograd.Function)


def has_separate_context(function: type[torch.autograd.Function]) -> bool:
    """Return True where the Function defines setup_context, so that forward takes no ctx."""
    return function.setup_context is not torch.autograd.Function.setup_context


def forward_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return the Function's forward as a plain function with the signature of its inputs."""

    def forward(*args: Any) -> Any:
        context = StandInContext(len(args))
        if has_separate_context(function):
            result = function.forward(*args)
            function.setup_context(context, args, result)
        else:
            result = function.forward(context, *args)
        marked = [id(t) for t in context.non_differentiable]
        if not marked:
            return result
        detach = [t.detach() if id(t) in marked else t for t in _as_list(result)]
        return detach[0] if isinstance(result, torch.Tensor) else tuple(detach)

    parameters = list(inspect.signature(function.forward).parameters.values())
    if not has_separate_context(function):
        parameters = parameters[1:]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    forward.__name__ = function.__name__
    return forward


def _as_list(result: Any) -> list[Any]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


@contextlib.contextmanager
def functions_as_forwards() -> Iterator[None]:
    """Within this, `SomeFunction.apply(...)` runs the plain forward.

    So a nested Function is differentiated by PyTorch and not by its own backward, which is what is under test.
    """
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        return functools.partial(forward_of(cls))(*args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        torch.autograd.Function.apply = original  # type: ignore[method-assign]
