"""The parameters of a kernel: their names in order, and what their defaults, annotations and names say of them."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels_core.errors import TraceError, UsageError
from kernels_core.kernel.callee import plain_function
from kernels_core.kernel.modules import ModuleKernel, as_kernel
from kernels_core.tracing.arguments import signature_of

TENSOR = "tensor"

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
_KINDS: Mapping[Any, str] = {
    list: "list", tuple: "tuple", dict: "dict", collections.abc.Sequence: "list", collections.abc.Iterable: "list",
    collections.abc.Mapping: "dict", collections.abc.Collection: "list",
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
        structure: "tensor" for one tensor, "list", "tuple" or "dict" for several, or a tree of these.
        optional: None by default, and not a plain value by its name or annotation: it may be a tensor.
        takes_text: it is annotated as text.
        alike: an item of a list whose items are probably of one shape.
    """

    name: str
    has_default: bool
    default: Any
    guess: Any
    looks_integer: bool
    structure: Any = TENSOR
    optional: bool = False
    takes_text: bool = False
    alike: bool = False


def parameters(function: Callable[..., Any], text: str) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel, without the ctx of a Function and the weights of a module.

    Raises:
        UsageError: the signature cannot be read.
    """
    kernel = as_kernel(function)
    plain = kernel.plain.forward if isinstance(kernel, ModuleKernel) else plain_function(kernel)
    try:
        found = signature_of(plain).parameters.values()
    except TraceError as error:
        raise UsageError(f"the arguments of {text} cannot be read: {error}\nwrite a spec with inputs_from") from error
    return tuple(_parameter(p, _hints(plain)) for p in found)


def _hints(function: Any) -> Mapping[str, Any]:
    """Return the annotations by name, those that are written as text read; none where they cannot be."""
    inner = getattr(function, "func", function)  # of a partial
    try:
        return typing.get_type_hints(getattr(inner, "__wrapped__", inner))
    except Exception:  # a name that is imported for type checkers only
        return {}


def _parameter(p: inspect.Parameter, hints: Mapping[str, Any]) -> Parameter:
    annotation, has_default = hints.get(p.name, p.annotation), p.default is not p.empty
    asked = of_annotation(annotation)
    guess = _ANNOTATED.get(annotation, _PLAIN.get(p.name)) if isinstance(annotation, (type, str)) else None
    default = p.default if has_default else None
    unsaid = annotation is p.empty and guess is None
    optional = has_default and default is None and (bool(asked) or unsaid)
    variadic = {inspect.Parameter.VAR_POSITIONAL: "tuple", inspect.Parameter.VAR_KEYWORD: "dict"}
    structure = variadic[p.kind] if p.kind in variadic else asked or TENSOR
    return Parameter(p.name, has_default, default, guess, p.name in _INTEGERS, structure, optional, annotation is str)


def _of_text(annotation: str) -> str:
    outer = annotation.removeprefix("Optional[").partition("[")[0].rpartition(".")[2].lower()
    return {"list": "list", "sequence": "list", "iterable": "list", "tuple": "tuple", "dict": "dict",
            "mapping": "dict"}.get(outer, TENSOR)  # fmt: skip


def of_annotation(annotation: Any) -> Any:
    """Return the structure that an annotation asks for; "tensor" for one tensor, "" for no tensor at all."""
    if isinstance(annotation, str):  # could not be evaluated
        return _of_text(annotation) if "Tensor" in annotation else ""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [of_annotation(part) for part in typing.get_args(annotation) if part is not type(None)]
        return next((found for found in inner if found), "")
    if isinstance(annotation, type) and issubclass(annotation, torch.Tensor):
        return TENSOR
    kind, parts = _KINDS.get(typing.get_origin(annotation), ""), typing.get_args(annotation)
    if not kind or not any(of_annotation(part) for part in parts):
        return ""
    if kind == "tuple" and parts[-1] is not Ellipsis:
        return tuple(of_annotation(part) or TENSOR for part in parts)
    return kind
