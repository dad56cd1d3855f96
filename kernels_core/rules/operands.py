"""How rules read operands: midpoints and bounds, integers, and numbers that a format cannot hold."""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local


def parts(value: Any) -> tuple[Any, torch.Tensor | None]:
    """Return (mid, bound) of an operand; a Python number has no bound; integers and booleans become float64."""
    if isinstance(value, Enclosure):
        if value.floating:
            return value.mid, value.bound
        mid = value.mid.to(torch.float64)
        if value.unsure is None:
            return mid, None
        width = torch.inf if value.mid.dtype != torch.bool else 1.0
        return mid, torch.where(value.unsure, width, 0.0).to(torch.float64)
    return float(value), None


def constant_rounding(local: Local, value: Any, *, stored: bool = False) -> float:
    """Return the rounding that a constant or integer tensor grants where the format cannot hold it, else 0.

    The format is that of the computation, for `stored` that of the result: PyTorch's CPU kernels cast the constant of
    an addition to bfloat16 or float16 first, those of products keep it in float32.
    """
    if local.arithmetic.float64 or (isinstance(value, Enclosure) and value.floating):
        return 0.0
    if isinstance(value, Enclosure):
        return integer_rounding(local, value.mid)
    if stored:
        return _number_rounding(float(value), local.dtype, local.u, local.eta)
    return _number_rounding(float(value), local.compute, local.u_acc, local.eta_acc)


def _number_rounding(value: float, dtype: torch.dtype, u: float, eta: float) -> float:
    held = torch.tensor(value, dtype=torch.float64)
    same = bool(held.to(dtype).to(torch.float64) == held) or not bool(held.isfinite())
    return 0.0 if same else u * abs(value) * INFLATE + eta


def integer_rounding(local: Local, value: torch.Tensor) -> float:
    """Return the largest rounding of these integers in the compute format: 0 up to 2^p, which it holds exactly."""
    largest = float(value.abs().amax()) if value.numel() and value.dtype is not torch.bool else 0.0
    return 0.0 if largest * (local.u_acc - local.own) <= 1 else local.u_acc * largest * INFLATE


def is_integral(local: Local) -> bool:
    """Return True where the result is an integer or boolean tensor: exact, computed by PyTorch itself."""
    return not local.nominal.is_floating_point


def integral(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
    """Run the operation itself on integers and booleans; the result is unsure where an operand is."""
    unsure = None
    for value in args:
        if isinstance(value, Enclosure) and value.unsure is not None:
            unsure = value.unsure if unsure is None else unsure | value.unsure
    mids = [v.mid if isinstance(v, Enclosure) else v for v in args]
    mid = local.step.op(*mids, **kwargs)  # type: ignore[misc]
    return Enclosure(mid, None, None if unsure is None else unsure.expand(mid.shape))


def plus(first: torch.Tensor | float | None, second: torch.Tensor | float | None) -> Any:
    """Return the sum of two bounds, None for none."""
    if first is None or (isinstance(first, float) and first == 0.0):
        return second if not (isinstance(second, float) and second == 0.0) else None
    if second is None or (isinstance(second, float) and second == 0.0):
        return first
    return first + second


def as_tensor(value: Any, like: torch.Tensor) -> torch.Tensor | None:
    """Return a bound as a tensor of the shape of `like`, None for none."""
    if value is None:
        return None
    return value if isinstance(value, torch.Tensor) else torch.full_like(like, value)
