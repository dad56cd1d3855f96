"""PyTorch's settings for the whole process, which a kernel has no business with: read, compared and put back.

A default dtype, a grad mode or a precision of matrix products that a kernel leaves behind changes what everybody else
computes, this program too. So every call of a kernel is followed by putting them back (`restored`), and whoever wants
to know what a kernel left behind collects it (`collected`).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

Changes = dict[str, tuple[Any, Any]]
_SUBNORMAL = 2.0**-1060


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of the process: how it is read, and how it is put back."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


def _attribute(owner: Any, name: str) -> Setting:
    return Setting(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _autocast(device: str) -> Setting:
    return Setting(
        lambda: torch.is_autocast_enabled(device), lambda value: torch.set_autocast_enabled(device, value)
    )  # fmt: skip


def _flushes() -> bool:
    """Return True where this thread takes subnormal numbers for zero; PyTorch sets it and does not tell."""
    return _SUBNORMAL * 0.5 == 0.0


SETTINGS: Mapping[str, Setting] = {
    "default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "default device": Setting(torch.get_default_device, torch.set_default_device),
    "grad mode": Setting(torch.is_grad_enabled, torch._C._set_grad_enabled),
    "autocast on the CPU": _autocast("cpu"),
    "autocast on CUDA": _autocast("cuda"),
    "number of threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": Setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    "flushing of subnormal numbers": Setting(_flushes, torch.set_flush_denormal),
    "precision of float32 products": Setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    "TF32 in cuDNN": _attribute(torch.backends.cudnn, "allow_tf32"),
    "cuDNN benchmark": _attribute(torch.backends.cudnn, "benchmark"),
    "cuDNN deterministic": _attribute(torch.backends.cudnn, "deterministic"),
    "reduced precision sums of float16": _attribute(
        torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"
    ),
    "reduced precision sums of bfloat16": _attribute(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"
    ),
    "anomaly mode": Setting(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
}  # fmt: skip

_COLLECTED: contextvars.ContextVar[Changes | None] = contextvars.ContextVar("collected", default=None)


def current() -> dict[str, Any]:
    """Return every setting as it is."""
    return {name: setting.read() for name, setting in SETTINGS.items()}


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put back what changes within this, and tell whoever collects changes."""
    before = current()
    try:
        yield
    finally:
        found = _COLLECTED.get()
        for name, now in current().items():
            if now != before[name]:
                SETTINGS[name].write(before[name])
                if found is not None:
                    found.setdefault(name, (before[name], now))


@contextlib.contextmanager
def collected() -> Iterator[Changes]:
    """Within this, what kernels leave behind is added to the mapping: name to the values before and after."""
    found: Changes = {}
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)
