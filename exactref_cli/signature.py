"""The parameters of a kernel: their names in order, and what their defaults, annotations and names say of them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import torch

from kernels_core.errors import UsageError
from kernels_core.standin import forward_of, is_function_class

# Names that stand for indices or class labels, and for plain values, in the kernels that people write.
_INTEGERS = {
    "index",
    "indices",
    "idx",
    "ids",
    "input_ids",
    "token_ids",
    "tokens",
    "target",
    "targets",
    "label",
    "labels",
}
_PLAIN: dict[str, Any] = {
    "eps": 1e-5, "epsilon": 1e-5, "dim": -1, "axis": -1, "causal": True, "is_causal": True, "training": True,
    "groups": 2, "num_groups": 2, "alpha": 0.5, "beta": 1.0, "cap": 2.0, "delta": 1.0, "threshold": 1.0,
    "temperature": 1.5, "negative_slope": 0.1, "slope": 0.1, "scale": 0.5, "factor": 0.5, "power": 3, "exponent": 3,
    "block": 16, "block_size": 16,
}  # fmt: skip
_ANNOTATED: dict[Any, Any] = {float: 0.5, int: 1, bool: True, "float": 0.5, "int": 1, "bool": True}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter.

    Attributes:
        name: of the parameter.
        has_default, default: its default value.
        guess: a value to try where the parameter looks like a plain one, else None.
        looks_integer: its name is one of those used for indices and labels.
        by_keyword: it cannot be given by position.
    """

    name: str
    has_default: bool
    default: Any
    guess: Any
    looks_integer: bool
    by_keyword: bool = False


def parameters(function: Callable[..., Any], text: str) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel, without the ctx of a Function.

    Raises:
        UsageError: the signature cannot be read, or has no fixed number of arguments.
    """
    try:
        found = inspect.signature(_forward(function)).parameters.values()
    except (TypeError, ValueError) as error:
        raise UsageError(f"the arguments of {text} cannot be read: {error}\nwrite a spec with inputs_from") from error
    variadic = [p.name for p in found if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if variadic:
        raise UsageError(f"{text} takes a varying number of arguments (*{variadic[0]})\nwrite a spec with inputs_from")
    return tuple(_parameter(p) for p in found)


def _forward(function: Callable[..., Any]) -> Callable[..., Any]:
    if is_function_class(function):
        return forward_of(function)
    return function.forward if isinstance(function, torch.nn.Module) else function


def _parameter(p: inspect.Parameter) -> Parameter:
    has_default = p.default is not p.empty
    guess = _ANNOTATED.get(p.annotation, _PLAIN.get(p.name)) if isinstance(p.annotation, (type, str)) else None
    default = p.default if has_default else None
    return Parameter(p.name, has_default, default, guess, p.name in _INTEGERS, p.kind is p.KEYWORD_ONLY)
