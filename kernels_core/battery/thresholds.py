"""Numbers at which a kernel may change its mind: what the reference compares with, what the kernel's code says, others.

A kernel may have a threshold that the reference lacks, in its backward alone: a clamp at 6, a cut-off at 20. Where its
code can be read, the numbers in it are candidates; numbers that are usual in such places are tried in any case.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernels_core.formats import format_of, next_down, next_up
from kernels_core.kernel.callee import function_class
from kernels_core.kernel.modules import ModuleKernel
from kernels_core.program import Program

USUAL = (0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 10.0, 20.0)
MOST = 24  # constants that are looked at
DEPTH = 3  # calls that are followed from a method into functions of the same file

_COMPARED = ("gt", "ge", "lt", "le", "eq", "ne", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold", "softplus")
_METHODS = ("forward", "backward", "setup_context", "jvp", "vjp")


def of_program(program: Program) -> Iterator[float]:
    """Yield the constants that the program compares with."""
    for step in program.steps:
        if step.name.startswith("aten.") and step.name.split(".")[1] in _COMPARED:
            plain = [*step.args, *step.kwargs.values()]
            yield from (float(x) for x in plain if isinstance(x, (int, float)) and not isinstance(x, bool))
        elif step.name.startswith(("aten.relu", "aten.abs")):
            yield 0.0


def of_code(kernel: Any) -> Iterator[float]:
    """Yield the numbers in the code of a kernel and of the functions of the same file that it calls."""
    owner = function_class(kernel) or (kernel.module if isinstance(kernel, ModuleKernel) else kernel)
    methods = [getattr(owner, name, None) for name in _METHODS]
    yield from _numbers([m for m in methods if m is not None] or [owner], set(), DEPTH)


def _numbers(functions: Sequence[Any], seen: set[types.CodeType], depth: int) -> Iterator[float]:
    for given in functions:
        function = inspect.unwrap(getattr(given, "fn", given))  # `fn` is what Triton's decorator keeps
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if code is None or code in seen or _is_pytorch(function):
            continue
        seen.add(code)
        yield from _constants(code)
        named = [function.__globals__.get(name) for name in code.co_names]
        named += [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
        yield from (float(x) for x in named if _is_number(x))
        if depth:
            yield from _numbers([f for f in named if callable(f) and not isinstance(f, type)], seen, depth - 1)


def _constants(code: types.CodeType) -> Iterator[float]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _constants(constant)
        elif isinstance(constant, tuple):
            yield from (float(x) for x in constant if _is_number(x))
        elif _is_number(constant):
            yield float(constant)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _is_pytorch(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).split(".")[0] in ("torch", "kernels_core", "builtins")


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # nothing was put into it yet
        return False


def points(constants: Sequence[float], dtype: torch.dtype, largest: float) -> torch.Tensor:
    """Return numbers on, just below and just above the constants of either sign, and a little away from them.

    Args:
        constants: to look at; those beyond `largest` are left out, and those after the first `MOST`.
        dtype: in which "just above" is the next number.
        largest: the largest magnitude that is of use.
    """
    chosen = [c for c in dict.fromkeys(abs(c) for c in constants) if c <= largest][:MOST]
    middle, fmt = torch.tensor(chosen, dtype=torch.float64).to(dtype).to(torch.float64), format_of(dtype)
    found = torch.cat([middle, next_down(middle, fmt), next_up(middle, fmt), middle - 0.25, middle + 0.25])
    both_signs: torch.Tensor = torch.cat([found, -found]).unique()
    return both_signs
