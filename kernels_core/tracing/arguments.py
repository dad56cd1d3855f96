"""The arguments and results of a reference by name: what its signature calls them, the tensors nested in them.

A tensor inside a list or dict is named after its place, "x[0]" or "x['k']", an upstream gradient after its output.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.overrides
from torch.utils import _pytree as pytree

from kernels_core.errors import TraceError

Arguments = Mapping[str, Any]


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


def cotangent_name(result: str) -> str:
    """Return the input name of a result's upstream gradient: "grad_output[1]" for "output[1]"."""
    return f"grad_{result}"
