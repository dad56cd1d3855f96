"""All values of a format as an input: a unary elementwise function is then checked everywhere, special values included.

The values stand in the order of their bits, so that the index of an element is its bit pattern.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from kernels_core.check import Check
from kernels_core.errors import UsageError
from kernels_core.program import Program, Ref
from kernels_core.rules import registry
from kernels_core.rules.cones import elementwise_tiles

Tensor = torch.Tensor
SHOWN = 6  # ranges of a line


def count(dtype: torch.dtype) -> int:
    """Return the number of bit patterns of an 8-bit or 16-bit floating dtype.

    Raises:
        UsageError: another dtype.
    """
    if not dtype.is_floating_point or dtype.itemsize > 2:
        name = str(dtype).removeprefix("torch.")
        raise UsageError(
            f"all values of {name} are too many to be tried\n"
            "exhaustive checks take 16-bit and 8-bit floating dtypes, as --dtype bfloat16"
        )
    return int(1 << (8 * dtype.itemsize))


def all_values(dtype: torch.dtype) -> Tensor:
    """Return every value of an 8-bit or 16-bit floating dtype, in the order of bits.

    Raises:
        UsageError: another dtype.
    """
    integer = torch.int16 if count(dtype) > 256 else torch.uint8
    return torch.arange(count(dtype)).to(integer).view(dtype)


def holds_all_values(tensor: Tensor) -> bool:
    """Return True for a tensor that `all_values` made."""
    if tensor.dim() != 1 or not tensor.is_floating_point() or tensor.dtype.itemsize > 2:
        return False
    if tensor.numel() != count(tensor.dtype):
        return False
    integer = torch.int16 if tensor.dtype.itemsize == 2 else torch.uint8
    return torch.equal(tensor.detach().cpu().contiguous().view(integer), all_values(tensor.dtype).view(integer))


def require_elementwise(check: Check, name: str) -> None:
    """Refuse a reference whose output elements depend on other elements of the input `name`, or on another tensor.

    Raises:
        UsageError: it is not unary and elementwise.
    """
    others = [other for other in check.tensors if other != name]
    if others:
        raise UsageError(f"all values of {name} are tried alone: {check.reference.name} takes {others[0]} as well\n"
                         "exhaustive checks are for functions of one tensor")  # fmt: skip
    for label, meta in check.whole_outputs.items():
        if meta.shape != tuple(check.tensors[name].shape):
            raise UsageError(f"{check.reference.name} is not elementwise: {label} is {list(meta.shape)}\n{_REMEDY}")
    for operation, source in _across(check.forward, Ref(check.forward.inputs[name])):
        where = f" ({source})" if source else ""
        raise UsageError(f"{check.reference.name} is not elementwise: it calls {operation}{where}\n{_REMEDY}")


_REMEDY = "exhaustive checks are for functions each of whose results depends on one value of the input"


def _across(program: Program, start: Ref) -> Iterator[tuple[str, str]]:
    """Yield the operations that read more than one element of what depends on the input."""
    reached = {start}
    for step in program.steps:
        if step.op is not None and reached & set(step.operands):
            reached |= {Ref(step.number, output) for output in range(len(step.metas))}
            if registry()[step.name].tiles is not elementwise_tiles:
                yield step.name, step.source


def failing_values(tensor: Tensor, failing: Tensor) -> str:
    """Return "violated on 312 of 65536 values: 0x3f80 to 0x3f9f (1 to 1.242), ...": ranges of bit patterns."""
    patterns = torch.nonzero(failing.reshape(-1)).reshape(-1).tolist()
    ranges = [(run[0], run[-1]) for run in _runs(patterns)]
    values, digits = tensor.detach().cpu().double().reshape(-1).tolist(), 2 * tensor.dtype.itemsize
    shown = []
    for first, last in ranges[:SHOWN]:
        bits = f"0x{first:0{digits}x}" + (f" to 0x{last:0{digits}x}" if last > first else "")
        shown.append(f"{bits} ({values[first]:.4g}" + (f" to {values[last]:.4g})" if last > first else ")"))
    more = f" and {len(ranges) - SHOWN} more ranges" if len(ranges) > SHOWN else ""
    return f"violated on {len(patterns)} of {failing.numel()} values: {', '.join(shown)}{more}"


def _runs(numbers: list[int]) -> Iterator[list[int]]:
    for _, run in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        yield [number for _, number in run]
