"""The inputs of a case, drawn per element in logical order from a seed, the same on every device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exactref_cli.target import user_frames
from kernels_core.errors import TargetError, UsageError, nearest
from kernels_core.inputs import families
from kernels_core.inputs.exhaustive import all_values
from kernels_core.kernel.modules import ModuleKernel
from kernels_core.tracing.arguments import named_tensors
from kernels_core.tracing.complex_parts import REAL, differentiable

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class TensorInput:
    """A tensor to be made.

    Attributes:
        name: of the argument.
        shape, dtype: of the tensor.
        values: a family such as "normal", or nested lists of numbers, or one number where there are no dimensions.
        below: integers are drawn from 0 to below - 1; None takes the smallest size of the floating inputs.
        requires_grad: None where nobody said.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    values: str | list[Any] | float = "normal"
    below: int | None = None
    requires_grad: bool | None = None


@dataclasses.dataclass(frozen=True)
class PlainInput:
    """A value that is not a tensor, passed on as it is."""

    name: str
    value: Any


@dataclasses.dataclass(frozen=True)
class GroupInput:
    """Several inputs under one name: lists, tuples and dicts of tensor and plain inputs, nested."""

    name: str
    tree: Any


Input = TensorInput | PlainInput | GroupInput
EXHAUSTIVE = "exhaustive"  # the family of all values of a dtype
MASK = "mask"  # the family of booleans, which says that a tensor is boolean and no more


def exhaustive(chosen: Sequence[Input]) -> list[str]:
    """Return the names of the inputs that hold all values of their dtype."""
    leaves = [one for given in chosen for one in flat(given)]
    return [one.name for one in leaves if isinstance(one, TensorInput) and one.values == EXHAUSTIVE]


def each(given: Input, function: Callable[[TensorInput | PlainInput], Any]) -> Any:
    """Return what `function` makes of an input; of a group the same lists, tuples and dicts of what it makes."""
    return pytree.tree_map(function, given.tree) if isinstance(given, GroupInput) else function(given)


def flat(given: Input) -> list[TensorInput | PlainInput]:
    """Return the inputs that a group is made of, or the one input."""
    return pytree.tree_leaves(given.tree) if isinstance(given, GroupInput) else [given]


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Inputs by name in argument order, and those to differentiate (None: every floating tensor)."""

    values: dict[str, Any]
    wrt: tuple[str, ...] | None


def dtype_named(name: str) -> torch.dtype:
    """Return the dtype called "float32".

    Raises:
        UsageError: there is none.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        known = [key for key, value in vars(torch).items() if isinstance(value, torch.dtype)]
        raise UsageError(f"no dtype is called {name!r}{nearest(name, known)}")
    return found


DEVICES = ("cpu", "cuda", "mps", "xpu")


def wrong_device(name: str) -> str:
    """Return why `name` names no device at all, "" where it does (it may still be missing here)."""
    try:
        torch.device(name)
    except RuntimeError:
        hint = nearest("cuda" if name == "gpu" else name, DEVICES)
        return f"wanted one of {', '.join(DEVICES)}, found {name!r}{hint}"
    return ""


def draw(inputs: Sequence[Input], seed: int, device: str = "cpu") -> Drawn:
    """Draw the inputs one after the other from one generator.

    Every number is drawn on the CPU in float64, in logical order of the elements, then rounded to the dtype, so that
    neither the device nor the memory layout changes it.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = [one for given in inputs for one in flat(given) if isinstance(one, TensorInput)]
    smallest = min((size for given in tensors if differentiable(given.dtype) for size in given.shape), default=2)

    def made(one: TensorInput | PlainInput) -> Any:
        return _tensor(one, generator, smallest).to(device) if isinstance(one, TensorInput) else one.value

    return Drawn({given.name: each(given, made) for given in inputs}, _declared(tensors))


def from_function(make: Callable[..., Any], seed: int, device: str = "cpu", dtype: torch.dtype | None = None) -> Drawn:
    """Return what the user's `inputs_from` function makes of a generator.

    Args:
        make: called with a seeded torch.Generator; returns a dict of tensors and values in argument order.
        seed: of the generator.
        device: where the tensors are moved to.
        dtype: that floating tensors are cast to, None to keep theirs.

    Raises:
        TargetError: it raised (with the user's frames), or returned something else.
    """
    name = getattr(make, "__name__", "inputs_from")
    try:
        made = make(torch.Generator().manual_seed(seed))
    except (Exception, SystemExit) as error:
        raise TargetError(f"{name} raised", user_frames(error)) from error
    if not isinstance(made, Mapping) or not all(isinstance(key, str) for key in made):
        raise TargetError(f"{name} returned a {type(made).__name__}: wanted a dict of tensors and values by name")
    for key, value in named_tensors(made).items():
        if value.is_meta:
            raise TargetError(f"{name} returned a tensor without elements for {key}: wanted one that holds values")
    wrt = tuple(key for key, value in named_tensors(made).items() if value.requires_grad)
    placed = {k: pytree.tree_map(lambda leaf: _placed(leaf, device, dtype), value) for k, value in made.items()}
    return Drawn(placed, wrt or None)


def with_parameters(drawn: Drawn, kernel: Any, device: str, dtype: torch.dtype | None = None) -> Drawn:
    """Return the inputs of a module together with its parameters, which are its own unless they were drawn too.

    Args:
        drawn: the inputs.
        kernel: returned as drawn where it is no module.
        device: of the parameters.
        dtype: of floating parameters, None for that of the first floating input.
    """
    if not isinstance(kernel, ModuleKernel):
        return drawn
    if dtype is None:
        dtype = next((t.dtype for t in named_tensors(drawn.values).values() if differentiable(t.dtype)), None)
    own = {name: value for name, value in kernel.values(dtype, device).items() if name not in drawn.values}
    wrt = None if drawn.wrt is None else (*drawn.wrt, *(name for name in kernel.trainable() if name in own))
    return Drawn({**drawn.values, **own}, wrt)


def _placed(value: Any, device: str, dtype: torch.dtype | None) -> Any:
    if not isinstance(value, Tensor):
        return value
    cast = dtype if dtype is not None and _casts(value.dtype, dtype) else value.dtype
    return value.detach().to(device=device, dtype=cast)


def _casts(source: torch.dtype, target: torch.dtype) -> bool:
    """Return True for floating tensors, and for complex ones where they stay complex."""
    return source.is_floating_point or (source.is_complex and target.is_complex)


def _declared(tensors: Iterable[TensorInput]) -> tuple[str, ...] | None:
    floating = [given for given in tensors if differentiable(given.dtype)]
    if all(given.requires_grad is None for given in floating):
        return None
    return tuple(given.name for given in floating if given.requires_grad is not False)


def _tensor(given: TensorInput, generator: torch.Generator, smallest: int) -> Tensor:
    if not isinstance(given.values, str):
        return torch.tensor(given.values, dtype=torch.float64).to(given.dtype)
    if given.values == EXHAUSTIVE:
        return all_values(given.dtype)
    if given.dtype == torch.bool:
        return torch.rand(given.shape, generator=generator, dtype=torch.float64) < 0.5
    if given.dtype.is_complex:
        parts = dataclasses.replace(given, dtype=REAL[given.dtype])
        return torch.complex(_tensor(parts, generator, smallest), _tensor(parts, generator, smallest))
    if not given.dtype.is_floating_point:
        below = max(1, smallest if given.below is None else given.below)
        return torch.randint(below, given.shape, generator=generator).to(given.dtype)
    numbers = families.draw(given.values, given.shape, generator, given.dtype)
    if given.values == "normal" and given.shape == ():
        numbers = _away_from_0_and_1(numbers)
    return numbers.to(given.dtype)


def _away_from_0_and_1(scalar: Tensor) -> Tensor:
    """Return a scalar that neither vanishes nor does nothing as a factor: its size is in [1/4, 3/4] or above 5/4."""
    size = scalar.abs() + 0.25
    return torch.copysign(torch.where(size > 0.75, size + 0.5, size), scalar)
