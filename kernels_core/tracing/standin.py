"""A Function's own forward as a plain PyTorch function: a stand-in ctx, and nested `apply` calls taken the same way.

The forward of a `torch.autograd.Function` runs outside of autograd, so its PyTorch operations can be traced and
differentiated when it is called with a ctx that only remembers. Both styles are supported: `forward(ctx, ...)` and
`forward(...)` with `setup_context`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import torch
from torch.overrides import TorchFunctionMode

from kernels_core.tracing.remembered import forgotten

_ON_A_LEAF = ("a leaf Variable that requires grad", "a view of a leaf Variable")


class StandInContext:
    """What a forward may do with its ctx, without effect: attributes are kept, declarations are accepted."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        """Pretend that every floating input needs a gradient."""
        self.needs_input_grad = tuple(
            isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) for x in inputs
        )
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


class OutsideOfAutograd(TorchFunctionMode):
    """Within this, what cuts a tensor off from autograd does nothing, as in a forward, which autograd does not see.

    That is `detach`, `.data` and `torch.no_grad`. Traced as plain PyTorch, they would make constants of what the
    forward computes.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function, unless it only cuts off."""
        if func in _CUTS_OFF:
            return args[0]
        if func is torch._C._set_grad_enabled:
            return None
        return func(*args, **(kwargs or {}))


_CUTS_OFF = frozenset({torch.Tensor.detach, torch.detach, inspect.getattr_static(torch.Tensor, "data").__get__})


def is_function_class(function: Any) -> TypeGuard[type[torch.autograd.Function]]:
    """Return True for a `torch.autograd.Function` class, which is called through `apply`."""
    return isinstance(function, type) and issubclass(function, torch.autograd.Function)


def has_separate_context(function: type[torch.autograd.Function]) -> bool:
    """Return True where the Function defines setup_context, so that forward takes no ctx."""
    return function.setup_context is not torch.autograd.Function.setup_context


def forward_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return the Function's forward as a plain function with the signature of its inputs."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        with forgotten(function):
            return _called(function, args, kwargs)

    parameters = list(inspect.signature(function.forward).parameters.values())
    if not has_separate_context(function):
        parameters = parameters[1:]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    forward.__name__ = function.__name__
    forward.__wrapped__ = function.forward  # type: ignore[attr-defined]  # whose annotations are the user's
    return forward


def _called(function: type[torch.autograd.Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if has_separate_context(function):
        args, kwargs = _with_defaults(function.forward, args, kwargs)  # as `apply` does in this style alone
    context = StandInContext(args)
    with OutsideOfAutograd():
        if has_separate_context(function):
            result = function.forward(*args, **kwargs)
            function.setup_context(context, args, result)
        else:
            result = function.forward(context, *args, **kwargs)
    marked = [id(t) for t in context.non_differentiable]
    if not marked:
        return result
    detach = [t.detach() if id(t) in marked else t for t in _as_list(result)]
    return detach[0] if isinstance(result, torch.Tensor) else tuple(detach)


def _with_defaults(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _as_list(result: Any) -> list[Any]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def refuses_leaves(error: BaseException) -> bool:
    """Return True where autograd refused an in-place operation because an input is a leaf that requires grad.

    Inside of a network the input is no leaf: the kernel is to be called on a copy that autograd made.
    """
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _ON_A_LEAF)


def uncompiled(kernel: Any) -> Any:
    """Return what torch.compile was given, None for a callable that is not compiled."""
    name = "_orig_mod" if isinstance(kernel, torch.nn.Module) else "_torchdynamo_orig_callable"
    return getattr(kernel, name, None)


def python_of_operator(operator: Any) -> Callable[..., Any] | None:
    """Return the Python function that a user's `torch.library.custom_op` was made of, None for anything else."""
    from torch._library.custom_ops import OPDEFS

    if isinstance(operator, torch._ops.OpOverload):
        operator = operator.overloadpacket
    if isinstance(operator, torch._ops.OpOverloadPacket):
        operator = OPDEFS.get(operator._qualified_op_name)
    found = getattr(operator, "_init_fn", None)
    return None if found is None or found.__module__.partition(".")[0] == "torch" else _outside_of_autograd(found)


def _outside_of_autograd(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with OutsideOfAutograd():
            return function(*args, **kwargs)

    return called


class _Plain:
    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        from kernels_core.tracing.standin import forward_of  # the code runs among the names of torch.autograd.function

        __class__  # type: ignore[name-defined]  # noqa: B018  # the code that this one stands in for closes over its class: as many cells
        return forward_of(cls)(*args, **kwargs)  # type: ignore[arg-type]


@contextlib.contextmanager
def functions_as_forwards() -> Iterator[None]:
    """Within this, `SomeFunction.apply(...)` runs the plain forward, and a compiled callable runs as it was written.

    So a nested Function is differentiated by PyTorch and not by its own backward, which is what is under test. The code
    of `apply` is exchanged, not the attribute: `square = Square.apply` in a module has been looked up long before.
    """
    apply = torch.autograd.Function.__dict__["apply"].__func__
    original, apply.__code__ = apply.__code__, _Plain.__dict__["apply"].__func__.__code__
    try:
        with _compiled_as_written():
            yield
    finally:
        apply.__code__ = original


def _compiled_as_written() -> contextlib.AbstractContextManager[Any]:
    dynamo = sys.modules.get("torch._dynamo.config")  # absent where nothing was compiled
    return contextlib.nullcontext() if dynamo is None else dynamo.patch(error_on_nested_fx_trace=False)
