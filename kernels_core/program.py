"""A program: the flat list of ATen operations that a PyTorch function is made of. Data only; tracing makes it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from kernels_core.errors import TraceError


class Ref(NamedTuple):
    """One result of one step: (number of the step, number of the output)."""

    step: int
    output: int = 0


class Meta(NamedTuple):
    """Shape and dtype of one result, as the reference computes it."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """Number of elements."""
        return int(torch.Size(self.shape).numel())


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One operation.

    Attributes:
        number: position in the program.
        op: the ATen operation; None for inputs and constants.
        name: "aten.mul.Tensor", "input" or "constant".
        args, kwargs: as called, with tensors replaced by Refs.
        metas: of the results (None for a result that is not a tensor).
        source: "file:line" of the reference, "" where unknown.
        backward: True where PyTorch's derivative formulas created the step.
        operand_metas: shape and dtype of each tensor operand, in the order of `operands`.
        free_zeros: places of operands whose zeros may have either sign, where the operation tells them apart
            (rewrites/zero_signs.py).
    """

    number: int
    op: Callable[..., Any] | None
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    metas: tuple[Meta | None, ...]
    source: str = ""
    backward: bool = False
    operand_metas: tuple[Meta, ...] = ()
    free_zeros: tuple[int, ...] = ()

    @functools.cached_property
    def operands(self) -> tuple[Ref, ...]:
        """The tensors that the operation reads, in order of appearance in args, then kwargs."""
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)), is_leaf=lambda x: isinstance(x, Ref))
        return tuple(leaf for leaf in leaves if isinstance(leaf, Ref))

    @functools.cached_property
    def _nested(self) -> tuple[bool, ...]:
        """True for each argument, by position and then by name, that holds operands in a list or the like."""
        values = (*self.args, *self.kwargs.values())
        return tuple(type(v) is not Ref and replace_refs(v, lambda _: _FOUND) != v for v in values)

    def filled(self, operands: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs with these in the place of `operands`."""
        given = iter(operands)

        def fill(value: Any, nested: bool) -> Any:
            if type(value) is Ref:
                return next(given)
            return replace_refs(value, lambda _: next(given)) if nested else value

        count = len(self.args)
        args = tuple(map(fill, self.args, self._nested))
        return args, dict(zip(self.kwargs, map(fill, self.kwargs.values(), self._nested[count:]), strict=True))

    @property
    def meta(self) -> Meta:
        """Shape and dtype of the first result."""
        meta = self.metas[0]
        if meta is None:
            raise TypeError(f"{self.name} has no tensor result")
        return meta

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return self.meta.shape

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument given by position or by name."""
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)


_FOUND = object()  # in the place of an operand, which it is not equal to


def replace_refs(tree: Any, function: Callable[[Ref], Any]) -> Any:
    """Return `tree` with every Ref replaced by function(ref); tuples, lists and dicts are kept."""
    if isinstance(tree, Ref):
        return function(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(replace_refs(item, function) for item in tree)
    if isinstance(tree, dict):
        return {key: replace_refs(item, function) for key, item in tree.items()}
    return tree


@dataclasses.dataclass(frozen=True)
class Program:
    """A reference with its gradient, traced at fixed shapes and dtypes.

    Attributes:
        steps: in an order in which each reads earlier ones only.
        inputs: names of the tensor inputs -> their step number.
        constants: step number -> tensor, for tensors that the reference closes over.
        outputs: names of the results ("output", "grad_A") -> Ref, or None for a gradient that is zero.
        output_metas: shape and dtype of each result.
        value_free: traced on tensors without values, so that the program is the same for all of them.
        complex_outputs: names of the reference's complex results, each of which is two here (complex_parts.py).
    """

    steps: tuple[Step, ...]
    inputs: Mapping[str, int]
    constants: Mapping[int, torch.Tensor]
    outputs: Mapping[str, Ref | None]
    output_metas: Mapping[str, Meta]
    value_free: bool = False
    complex_outputs: tuple[str, ...] = ()

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the results of the program of a forward, computed by PyTorch's own operations in their own dtypes."""
        found: dict[int, Any] = {number: inputs[name] for name, number in self.inputs.items()} | dict(self.constants)

        def value(ref: Ref) -> Any:
            result = found[ref.step]
            return result[ref.output] if isinstance(result, (tuple, list)) else result

        for step in self.steps:
            if step.op is not None:
                found[step.number] = _differentiable(step)(
                    *replace_refs(step.args, value), **replace_refs(step.kwargs, value)
                )
        return {name: value(ref) for name, ref in self.outputs.items() if ref is not None}

    def only(self, names: list[str]) -> Program:
        """Return the program that computes just these results."""
        return without_dead_steps(dataclasses.replace(self, outputs={name: self.outputs[name] for name in names}))

    def forward(self, inputs: Collection[str]) -> Program:
        """Return the program of the outputs alone, which needs just these inputs."""
        own = {name: number for name, number in self.inputs.items() if name in inputs}
        program = self.only([name for name in self.outputs if not name.startswith("grad_")])
        steps = tuple(step for step in program.steps if step.name != "input" or step.number in own.values())
        metas = {name: self.output_metas[name] for name in program.outputs}
        return dataclasses.replace(program, steps=steps, inputs=own, output_metas=metas)


# Primitives that PyTorch's function of the same name computes on floating tensors.
_PRIMITIVES = frozenset({
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clone", "cos", "cosh",
    "digamma", "div", "erf", "erfc", "exp", "exp2", "expm1", "floor", "fmax", "fmin", "fmod", "hypot", "lgamma",
    "log", "log10", "log1p", "log2", "maximum", "minimum", "mul", "neg", "nextafter", "pow", "reciprocal",
    "remainder", "rsqrt", "sign", "signbit", "sin", "sinh", "sqrt", "sub", "tan", "tanh", "trunc", "where",
})  # fmt: skip


def _differentiable(step: Step) -> Callable[..., Any]:
    """Return the operation of a step in a form that has derivatives; PyTorch's primitives lose tangents silently.

    Raises:
        TraceError: there is none.
    """
    if step.name == "aten.copy.default":
        return _copied
    kind, name, *_ = step.name.split(".")
    floats = all(meta is not None and meta.dtype.is_floating_point for meta in step.metas)
    if kind != "prims" or not floats:
        return step.op  # type: ignore[return-value]
    if name not in _PRIMITIVES:
        raise TraceError(f"{step.name} has no derivative of its own")
    return getattr(torch, name)  # type: ignore[no-any-return]


def _copied(like: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Return what `like` holds after a copy into it: PyTorch's own functional copy has no forward mode."""
    return source.to(like.dtype).expand(like.shape)


def without_dead_steps(program: Program) -> Program:
    """Return the program without the steps that no output needs (inputs stay; numbers are kept)."""
    needed = {ref.step for ref in program.outputs.values() if ref is not None}
    for step in reversed(program.steps):
        if step.number in needed:
            needed.update(ref.step for ref in step.operands)
    kept = tuple(step for step in program.steps if step.number in needed or step.name == "input")
    return dataclasses.replace(program, steps=kept)
