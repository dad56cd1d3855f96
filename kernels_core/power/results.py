"""Faults in a finished result: each takes an output or gradient and returns it damaged, None where that is void."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

Tensor = torch.Tensor
Damage = Callable[[Tensor], "Tensor | None"]


def scaled(factor: float) -> Damage:
    """Return the fault that multiplies every value, with one rounding to the format of the result."""
    return lambda value: (value.double() * factor).to(value.dtype)


def rounded(dtype: torch.dtype) -> Damage:
    """Return the fault that rounds every value to a narrower format."""
    narrower = torch.finfo(dtype).bits

    def damage(value: Tensor) -> Tensor | None:
        finer = torch.finfo(value.dtype).eps < torch.finfo(dtype).eps
        return value.to(dtype).to(value.dtype) if finer and narrower <= torch.finfo(value.dtype).bits else None

    return damage


def at_one(change: Callable[[Tensor], Tensor], part: float = 0.5) -> Damage:
    """Return the fault that changes one element, `part` of the way through the tensor: the next that is not zero."""

    def damage(value: Tensor) -> Tensor | None:
        flat = value.clone().contiguous().reshape(-1)
        candidates = torch.nonzero((flat != 0) & flat.isfinite()).reshape(-1)
        if not len(candidates):
            return None
        place = candidates[min(int(part * len(candidates)), len(candidates) - 1)]
        flat[place] = change(flat[place].double()).to(value.dtype)
        return flat.reshape(value.shape)

    return damage


def _transposed(value: Tensor) -> Tensor | None:
    square = value.dim() >= 2 and value.shape[-1] == value.shape[-2] > 1
    return value.mT.contiguous() if square else None


def _swapped(value: Tensor) -> Tensor | None:
    if value.numel() < 2:
        return None
    flat = value.clone().contiguous().reshape(-1)
    middle = max(1, flat.numel() // 2)
    flat[[middle - 1, middle]] = flat[[middle, middle - 1]]
    return flat.reshape(value.shape)


def _tail_zeroed(value: Tensor) -> Tensor | None:
    if not value.dim():
        return None
    damaged = value.clone()
    damaged[..., -1] = 0
    return damaged


def _last_row_stale(value: Tensor) -> Tensor | None:
    if not value.dim() or value.shape[0] < 2:
        return None
    damaged = value.clone()
    damaged[-1] = value[-2]
    return damaged


def _masked(value: Tensor) -> Tensor | None:
    return value.tril() if value.dim() >= 2 and value.shape[-1] > 1 else None


def _shifted(value: Tensor) -> Tensor | None:
    return value.roll(1, -1) if value.dim() and value.shape[-1] > 1 else None


def _flipped(value: Tensor) -> Tensor | None:
    return value.flip(-1) if value.dim() and value.shape[-1] > 1 else None


def _averaged(value: Tensor) -> Tensor | None:
    return value.mean(-1, keepdim=True).expand(value.shape).contiguous() if value.dim() else None


KINDS: Mapping[str, Damage] = {
    "sign flipped": lambda value: -value,
    "factor 1.001": scaled(1.001),
    "factor 1.01": scaled(1.01),
    "factor 1.1": scaled(1.1),
    "factor 1.5": scaled(1.5),
    "factor 2": scaled(2.0),
    "factor 1/2": scaled(0.5),
    "zero": torch.zeros_like,
    "magnitude only": torch.abs,
    "negative values cut": torch.relu,
    "transposed": _transposed,
    "shifted by one": _shifted,
    "reversed": _flipped,
    "two elements swapped": _swapped,
    "last column unprocessed": _tail_zeroed,
    "last row stale": _last_row_stale,
    "causal mask applied": _masked,
    "mean in place of values": _averaged,
    "one element zero": at_one(lambda v: v * 0),
    "one element's sign": at_one(lambda v: -v, 0.25),
    "one element 1.01 times": at_one(lambda v: v * 1.01, 0.75),
    "one element NaN": at_one(lambda v: v * torch.nan, 0.0),
    "rounded to float16": rounded(torch.float16),
    "rounded to bfloat16": rounded(torch.bfloat16),
    "rounded to float8_e4m3fn": rounded(torch.float8_e4m3fn),
}
