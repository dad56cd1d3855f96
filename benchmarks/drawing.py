"""One random program of any dtype, and its inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.random_complex_programs import random_complex_inputs, random_complex_program
from benchmarks.random_float8_programs import random_float8_program
from benchmarks.random_programs import INACCURATE_IN_FLOAT64, random_inputs, random_program

Tensor = torch.Tensor


def drawn(
    seed: int, dtype: torch.dtype, *, elementwise: bool = False
) -> tuple[Callable[..., Tensor], list[str], list[Tensor]]:
    """Return a program, the names of its operations and its inputs."""
    if dtype.itemsize == 1:
        return random_float8_program(seed, dtype, elementwise=elementwise)
    if dtype.is_complex:
        return *random_complex_program(seed, elementwise=elementwise), random_complex_inputs(seed, dtype)
    left_out = INACCURATE_IN_FLOAT64 if dtype is torch.float64 else ()
    return *random_program(seed, elementwise=elementwise, leave_out=left_out), random_inputs(seed, dtype)
