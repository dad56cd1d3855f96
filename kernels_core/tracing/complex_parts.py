"""Complex tensors at the edges of a program: a program is real, and each of them is two of its inputs or results.

The complex input z is the inputs "z.real" and "z.imag", the complex result "output" the results "output.real" and
"output.imag", its upstream gradient "grad_output.real" and "grad_output.imag". A gradient is PyTorch's: of a real loss
L by z = x + iy it is dL/dx + i dL/dy, whose parts are decided one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from kernels_core.program import Meta

Tensor = torch.Tensor
REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
COMPLEX = {real: dtype for dtype, real in REAL.items()}
SUFFIXES = (".real", ".imag")


class HasDtype(Protocol):
    """A tensor or a Meta."""

    @property
    def dtype(self) -> torch.dtype:
        """Its dtype."""


def differentiable(dtype: torch.dtype) -> bool:
    """Return True for floating and complex dtypes."""
    return dtype.is_floating_point or dtype.is_complex


def part_names(name: str, like: HasDtype) -> list[str]:
    """Return the names of a tensor in a program: its own, or those of its two parts."""
    return [name + suffix for suffix in SUFFIXES] if like.dtype.is_complex else [name]


def names_of_parts(tensors: Mapping[str, HasDtype]) -> list[str]:
    """Return the names of all the tensors in a program, in order."""
    return [part for name, like in tensors.items() for part in part_names(name, like)]


def parts_of(tensor: Tensor) -> list[Tensor]:
    """Return the tensor itself, or the real and the imaginary part of a complex one."""
    if not tensor.is_complex():
        return [tensor]
    pairs = torch.view_as_real(tensor.resolve_conj())
    return [pairs[..., 0], pairs[..., 1]]


def apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by name with the parts of complex ones in their place."""
    return {name: part for n, t in tensors.items() for name, part in zip(part_names(n, t), parts_of(t), strict=True)}


def values_apart(values: Iterable[Tensor | None], like: Iterable[HasDtype]) -> list[Tensor | None]:
    """Return tensors with the parts of complex ones in their place; None stands for both parts where `like` has two."""
    found: list[Tensor | None] = []
    for value, meta in zip(values, like, strict=True):
        found += [None] * (2 if meta.dtype.is_complex else 1) if value is None else parts_of(value)
    return found


def together(like: Mapping[str, HasDtype], values: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return tensors by name from their parts in order (the inverse of `apart`)."""
    given, found = iter(values), {}
    for name, meta in like.items():
        found[name] = torch.complex(next(given), next(given)) if meta.dtype.is_complex else next(given)
    return found


def whole_metas(metas: Mapping[str, Meta], complex_names: Collection[str]) -> dict[str, Meta]:
    """Return shape and dtype of results with complex ones in the place of their parts."""
    parts = {name + suffix: name for name in complex_names for suffix in SUFFIXES}
    found = {}
    for name, meta in metas.items():
        whole = parts.get(name)
        found[whole or name] = meta if whole is None else Meta(meta.shape, COMPLEX[meta.dtype])
    return found


def returned_apart(found: Mapping[str, Tensor | None], names: Collection[str]) -> dict[str, Tensor | None]:
    """Return what a kernel returned under the names of a program's results; None stands for both parts of a gradient.

    A real tensor where the reference has a complex one stays under its own name, which no result has.
    """
    split: dict[str, Tensor | None] = {}
    for name, tensor in found.items():
        if name in names or name + SUFFIXES[0] not in names or (tensor is not None and not tensor.is_complex()):
            split[name] = tensor
        else:
            parts: Sequence[Any] = (None, None) if tensor is None else parts_of(tensor)
            split.update(zip((name + suffix for suffix in SUFFIXES), parts, strict=True))
    return split


def widest(tensor: Tensor) -> Tensor:
    """Return a floating tensor as float64, a complex one as complex128."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def draw(meta: HasDtype, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw normal numbers per element in logical order, rounded once; a complex number is two of them."""
    parts = 2 if meta.dtype.is_complex else 1
    numbers = torch.randn((*shape, 2) if parts == 2 else tuple(shape), generator=generator, dtype=torch.float32)
    return (torch.view_as_complex(numbers) if parts == 2 else numbers).to(meta.dtype)
