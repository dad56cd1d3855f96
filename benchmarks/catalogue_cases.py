"""Inputs of every catalogue reference as cases of the mutation score, at small shapes and at those of production."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

import exactref as er
from benchmarks.catalogue_examples import EXAMPLES, Draw
from benchmarks.production_examples import PRODUCTION
from kernels_core.reference import Reference

Tensor = torch.Tensor
Shapes = Mapping[str, tuple[int, ...]]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

_ELEMENTWISE = ("gelu", "silu", "relu", "sigmoid", "tanh", "softplus", "square", "cube")
SMALL: Mapping[str, Shapes] = {
    "matmul": {"A": (4, 6), "B": (6, 3)},
    "linear": {"input": (4, 6), "weight": (3, 6), "bias": (3,)},
    "softmax": {"input": (3, 6)},
    "log_softmax": {"input": (3, 6)},
    "layer_norm": {"input": (4, 6), "weight": (6,), "bias": (6,)},
    "rms_norm": {"input": (4, 6), "weight": (6,)},
    "attention": {"query": (1, 4, 3), "key": (1, 4, 3), "value": (1, 4, 3)},
    **{name: {"input": (4, 6)} for name in _ELEMENTWISE},
    **{name: {"gate": (4, 6), "up": (4, 6)} for name in ("swiglu", "geglu")},
}
"""Sizes small enough for gradcheck; the other entries take those of `catalogue_examples`."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A reference as a kernel, with its inputs and the names of those that are differentiated (None: all floating)."""

    name: str
    dtype: torch.dtype
    reference: Reference
    inputs: Mapping[str, Any]
    wrt: Sequence[str] | None = None

    @property
    def title(self) -> str:
        """Name and format."""
        return f"{self.name} {str(self.dtype)[6:]}"

    @property
    def kernel(self) -> Callable[..., Any]:
        """The reference's function, with its declared backward where it has one."""
        return self.reference.function if self.reference.declared is None else _declared(self.reference)


def cases(names: Sequence[str], production: bool) -> Iterator[Case]:
    """Yield the cases of these references in every dtype."""
    for name in names:
        for dtype in DTYPES:
            inputs = (PRODUCTION if production else {**EXAMPLES, **_SMALL})[name](Draw(dtype))
            yield Case(name, dtype, er.catalogue()[name], inputs)


def _drawn(shapes: Shapes) -> Callable[[Draw], dict[str, Any]]:
    return lambda draw: {name: draw.normal(*shape) for name, shape in shapes.items()}


_SMALL = {name: _drawn(shapes) for name, shapes in SMALL.items()}


def _declared(reference: Reference) -> Callable[..., Any]:
    """Return a Function that differentiates as the reference declares."""

    class Declared(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            outputs = reference.function(*inputs)
            ctx.inputs, ctx.outputs = inputs, outputs if isinstance(outputs, tuple) else (outputs,)
            return outputs

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            found = iter(reference.declared(ctx.inputs, ctx.outputs, grads))  # type: ignore[misc]
            return tuple(next(found) if isinstance(t, Tensor) and t.is_floating_point() else None for t in ctx.inputs)

    return Declared
