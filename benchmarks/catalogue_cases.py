"""Inputs of every catalogue reference, at small shapes and at shapes as in production.

A reference that has no line in the tables takes the inputs of its example in `configs/`; for production every size in
them is multiplied by one number, so that the largest tensor has about 2^17 elements. Lists of numbers stay as they are.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import yaml

import exactref as er
from exactref_cli import plan
from kernels_core.reference import Reference

Tensor = torch.Tensor
Shapes = Mapping[str, tuple[int, ...]]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"
LARGE = 1 << 17

_ELEMENTWISE = ("gelu", "silu", "relu", "sigmoid", "tanh", "softplus", "square", "cube")
SMALL: Mapping[str, Shapes] = {
    "matmul": {"A": (4, 6), "B": (6, 3)},
    "linear": {"input": (4, 6), "weight": (3, 6), "bias": (3,)},
    "softmax": {"input": (3, 6)},
    "log_softmax": {"input": (3, 6)},
    "cross_entropy": {"input": (4, 6)},
    "layer_norm": {"input": (4, 6), "weight": (6,), "bias": (6,)},
    "rms_norm": {"input": (4, 6), "weight": (6,)},
    "attention": {"query": (1, 4, 3), "key": (1, 4, 3), "value": (1, 4, 3)},
    **{name: {"input": (4, 6)} for name in _ELEMENTWISE},
    **{name: {"gate": (4, 6), "up": (4, 6)} for name in ("swiglu", "geglu")},
}
PRODUCTION: Mapping[str, Shapes] = {
    "matmul": {"A": (256, 1024), "B": (1024, 256)},
    "linear": {"input": (256, 1024), "weight": (256, 1024), "bias": (256,)},
    "softmax": {"input": (256, 1024)},
    "log_softmax": {"input": (256, 1024)},
    "cross_entropy": {"input": (256, 1024)},
    "layer_norm": {"input": (256, 1024), "weight": (1024,), "bias": (1024,)},
    "rms_norm": {"input": (256, 1024), "weight": (1024,)},
    "attention": {name: (4, 128, 64) for name in ("query", "key", "value")},
    **{name: {"input": (256, 1024)} for name in _ELEMENTWISE},
    **{name: {"gate": (256, 1024), "up": (256, 1024)} for name in ("swiglu", "geglu")},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A reference as a kernel, with its inputs and the names of those that are differentiated (None: all floating)."""

    name: str
    dtype: torch.dtype
    reference: Reference
    inputs: Mapping[str, Any]
    wrt: Sequence[str] | None = None

    @property
    def kernel(self) -> Callable[..., Any]:
        """The reference's function, with its declared backward where it has one."""
        return self.reference.function if self.reference.declared is None else _declared(self.reference)


def cases(names: Sequence[str], production: bool) -> Iterator[Case]:
    """Yield the cases of these references in every dtype; those whose example cannot grow have no production shapes."""
    examples = {check["reference"].removeprefix("exactref:"): check for check in _examples()}
    table = PRODUCTION if production else SMALL
    for name in names:
        if name in table:
            yield from (Case(name, dtype, er.catalogue()[name], _drawn(name, table[name], dtype)) for dtype in DTYPES)
        elif name in examples:
            yield from _of_example(name, examples[name], production)


def _drawn(name: str, shapes: Shapes, dtype: torch.dtype) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    drawn: dict[str, Any] = {n: torch.randn(shape, generator=generator).to(dtype) for n, shape in shapes.items()}
    if name == "cross_entropy":
        rows, classes = shapes["input"]
        drawn["target"] = torch.randint(classes, (rows,), generator=generator)
    return drawn


def _examples() -> Iterator[dict[str, Any]]:
    """Yield the checks of `configs/` that hold a kernel which is right against a catalogue reference."""
    for path in sorted(CONFIGS.rglob("*.yaml"), reverse=True):
        for check in yaml.safe_load(path.read_text())["checks"]:
            right = check.get("expect", "covered") == "covered" and "inputs" in check
            if right and str(check.get("reference", "")).startswith("exactref:"):
                yield check


def _of_example(name: str, example: Mapping[str, Any], production: bool) -> Iterator[Case]:
    check: dict[str, Any] = {"name": name, "function": f"exactref:{name}", "reference": f"exactref:{name}",
                             "inputs": _grown(example, production), "battery": "none",
                             "matrix": {"dtype": [str(dtype)[6:] for dtype in DTYPES]}}  # fmt: skip
    if production and check["inputs"] == _grown(example, False):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "spec.yaml"
        path.write_text(yaml.safe_dump({"version": 1, "checks": [check]}, sort_keys=False))
        for case, dtype in zip(plan.from_specs([path]), DTYPES, strict=True):
            drawn = case.inputs()
            yield Case(name, dtype, er.catalogue()[name], drawn.values, drawn.wrt)


def _grown(example: Mapping[str, Any], production: bool) -> dict[str, Any]:
    """Return the inputs of an example with their sizes as numbers, all multiplied by one number for production."""
    dims = {**example.get("dims", {}), **{k: v[0] for k, v in example.get("matrix", {}).items() if k.isupper()}}
    shapes = {n: [dims.get(d, d) for d in given["shape"]] for n, given in example["inputs"].items() if "shape" in given}
    literal = any(isinstance(given.get("values"), list) for given in example["inputs"].values())
    factor = 1
    while production and not literal and max(math.prod(_times(s, 2 * factor)) for s in shapes.values()) <= LARGE:
        factor *= 2
    return {
        n: {**given, "shape": _times(shapes[n], factor)} if n in shapes else given
        for n, given in example["inputs"].items()
    }


def _times(shape: Sequence[int], factor: int) -> list[int]:
    return [n * factor if n > 1 else n for n in shape]


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
