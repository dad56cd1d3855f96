"""Families of values: inputs of one kind each, that show faults which friendly numbers hide.

Every family returns float64 numbers of a shape, to be rounded to a dtype; magnitudes depend on what the dtype holds.
They stay where products of four inputs neither overflow nor vanish: a correct kernel may form those in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from kernels_core.errors import UsageError, nearest
from kernels_core.formats import format_of

Tensor = torch.Tensor
Shape = tuple[int, ...]
Family = Callable[[Shape, torch.Generator, torch.dtype], Tensor]
MANY = 1 << 20  # numbers, from which the time to draw them counts


def _normal(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=_drawn_in(shape, dtype)).to(torch.float64)


def _unit(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=_drawn_in(shape, dtype)).to(torch.float64)


def _drawn_in(shape: Shape, dtype: torch.dtype) -> torch.dtype:
    """Return the format to draw in: float32, ten times as fast in PyTorch, where many numbers lose nothing by it."""
    return torch.float32 if math.prod(shape) >= MANY and precision(dtype) <= precision(torch.float32) else torch.float64


def _uniform(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return 2 * _unit(shape, generator, dtype) - 1


def _positive(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.exp2(4 * _unit(shape, generator, dtype) - 2)  # in [1/4, 4): away from 0, where log and 1/x end


def _zeros(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _zero_rows(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return normal numbers, every second row of them zero, and the only row of a vector but for its ends."""
    numbers = _normal(shape, generator, dtype)
    if len(shape) > 1:
        numbers.reshape(-1, shape[-1])[::2] = 0.0
    elif shape:
        numbers[1:-1] = 0.0
    return numbers


def _ones(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


def precision(dtype: torch.dtype) -> int:
    """Return the number of significant bits of a floating dtype."""
    return format_of(dtype).precision


def reach(dtype: torch.dtype) -> int:
    """Return the exponent r for which 2^r and 2^-r are far from overflow and underflow: a sixth of the range."""
    return int(math.log2(torch.finfo(dtype).max)) // 6


def _offset(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return a large offset with a small spread: half of the bits are the offset's."""
    return 2.0 ** (precision(dtype) // 2) + _normal(shape, generator, dtype)


def _huge(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return large numbers of both signs, and rows of negative ones alone, below what a maximum may begin with."""
    numbers = 2.0 ** reach(dtype) * _normal(shape, generator, dtype)
    return torch.where(_second_rows(shape), -numbers.abs(), numbers)


def _second_rows(shape: Shape) -> Tensor:
    """Return True in every second row, in the second half of a vector."""
    if len(shape) < 2:
        return torch.arange(math.prod(shape)).reshape(shape) > math.prod(shape) // 2
    return (torch.arange(math.prod(shape[:-1])) % 2 == 1).reshape(*shape[:-1], 1)


def _tiny(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return 2.0 ** -reach(dtype) * _normal(shape, generator, dtype)


def _subnormals(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.finfo(dtype).smallest_normal * _uniform(shape, generator, dtype)


def _outliers(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return normal numbers, every thirteenth of them 2^(r/2) times as large."""
    numbers = _normal(shape, generator, dtype).reshape(-1)
    numbers[::13] *= 2.0 ** max(2, reach(dtype) // 2)
    return numbers.reshape(shape)


def _ties(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.randint(-2, 3, shape, generator=generator).to(torch.float64)


def _signed_zeros(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    numbers, zero = _normal(shape, generator, dtype), _unit(shape, generator, dtype) < 0.5
    return torch.where(zero, torch.copysign(torch.zeros_like(numbers), numbers), numbers)


def _constants(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return rows of one number each."""
    rows = _normal((*shape[:-1], 1) if shape else (), generator, dtype)
    return rows.expand(shape).clone()


def _cancelling(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return pairs of neighbours that cancel but for the last bits."""
    numbers = _normal(shape, generator, dtype).reshape(-1)
    pairs = numbers[: numbers.numel() // 2 * 2].reshape(-1, 2)
    pairs[:, 1] = -pairs[:, 0] * (1 + 2.0 ** (2 - precision(dtype)))
    return numbers.reshape(shape)


def _one_hot(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    numbers = torch.zeros(shape, dtype=torch.float64)
    if shape and numbers.numel():
        numbers.scatter_(-1, torch.randint(shape[-1], (*shape[:-1], 1), generator=generator), 1.0)
    return numbers


def _probabilities(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return numbers from 0 to 1, both ends among them."""
    numbers = _unit(shape, generator, dtype).reshape(-1)
    numbers[::5], numbers[2::5] = 0.0, 1.0
    return numbers.reshape(shape)


def _masked(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return normal numbers with a part of each row at -inf, from none of it to all but one element."""
    numbers = _normal(shape, generator, dtype)
    if not shape or not numbers.numel():
        return numbers
    size = shape[-1]
    kept = 1 + torch.randint(size, (*shape[:-1], 1), generator=generator)
    return numbers.masked_fill(torch.arange(size).expand(shape) >= kept, -math.inf)


_MIXED = (
    "normal", "uniform", "offset", "huge", "tiny", "outliers", "ties", "signed_zeros", "constants", "cancelling",
    "one_hot", "probabilities",
)  # fmt: skip


def _mixed(shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return rows of one family each, in an order that is drawn; elements of one family each in a vector.

    Infinities (`masked`) and subnormals are left out: what they do to a sum would hide every other row of it.
    """
    width = shape[-1] if len(shape) > 1 else 1
    rows = math.prod(shape) // width if width else 0
    numbers = torch.empty(rows, width, dtype=torch.float64)
    for place, family in enumerate(torch.randperm(len(_MIXED), generator=generator).tolist()):
        own = numbers[place :: len(_MIXED)]
        own.copy_(FAMILIES[_MIXED[family]](tuple(own.shape), generator, dtype))
    return numbers.reshape(shape)


FAMILIES: Mapping[str, Family] = {
    "normal": _normal, "uniform": _uniform, "positive": _positive, "zeros": _zeros, "zero_rows": _zero_rows,
    "ones": _ones, "offset": _offset,
    "huge": _huge, "tiny": _tiny, "subnormals": _subnormals, "outliers": _outliers, "ties": _ties,
    "signed_zeros": _signed_zeros, "constants": _constants, "cancelling": _cancelling, "one_hot": _one_hot,
    "probabilities": _probabilities, "masked": _masked, "mixed": _mixed,
}  # fmt: skip


def draw(family: str, shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return float64 numbers of a family, still to be rounded to `dtype`.

    Raises:
        UsageError: no family has this name.
    """
    if family not in FAMILIES:
        raise UsageError(f"no family of values is called {family!r} for floating tensors{nearest(family, FAMILIES)}\n"
                         f"known: {', '.join(FAMILIES)}")  # fmt: skip
    return FAMILIES[family](shape, generator, dtype)
