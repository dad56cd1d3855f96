"""`profile: auto`: the arithmetic that PyTorch itself may use on a device, as its own flags say. Flags are only read.

    cpu     ieee; amx where the machine has AMX tiles and bfloat16 takes part
    cuda    cuda, which grants tensor cores of any generation; sharper profiles are for those who know more
    else    ieee

and on each device the knobs that PyTorch's flags call for:

    matmul_input        float32 products in TF32 or bfloat16: set_float32_matmul_precision, allow_tf32, fp32_precision
    convolution_input   convolutions in TF32: cudnn.allow_tf32, which is on by default
    split_k=2           allow_bf16_reduced_precision_reduction and its float16 twin, both on by default
    accumulate=float16  allow_fp16_accumulation, and on the CPU its float16 reduction

Split-k. cuBLAS may round the partial results of a split inner dimension to the result's format before it adds them in
float32. However many parts there are, that costs each product one such rounding, u sum |a b|; split_k=2 grants 2 u.

Source: PyTorch, docs/source/notes/numerical_accuracy.rst and backends.rst.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from kernels_core.profiles.named import PROFILES
from kernels_core.profiles.profile import Profile

_FP16_ON_CPU = "_get_cpu_allow_fp16_reduced_precision_reduction"
_FORMATS = {"tf32": "tf32", "bf16": "bfloat16"}  # as PyTorch writes them, and as knobs do


def pick(device: torch.device, dtypes: Collection[torch.dtype]) -> Profile:
    """Return the profile of a device for inputs of these dtypes, with its reason."""
    name, why = _named(device, dtypes)
    flags = [found for found in (_on_cuda if device.type == "cuda" else _on_cpu)(dtypes) if found is not None]
    changes = {knob: value for found, _ in flags for knob, value in found.items()}
    reason = "; ".join(["auto: " + why, *(text for _, text in flags)])
    return dataclasses.replace(PROFILES[name], **changes, reason=reason)


Flag = tuple[dict[str, Any], str]


def _named(device: torch.device, dtypes: Collection[torch.dtype]) -> tuple[str, str]:
    if device.type == "cuda":
        return "cuda", "a cuda device"
    if device.type == "cpu" and torch.bfloat16 in dtypes and _read(lambda: torch.cpu._is_amx_tile_supported()):
        return "amx", "bfloat16 on a cpu with AMX tiles"
    return "ieee", device.type if device.type == "cpu" else f"no profile is known for {device.type}"


def _on_cpu(dtypes: Collection[torch.dtype]) -> Iterator[Flag | None]:
    matmul = _read(lambda: torch.backends.mkldnn.matmul.fp32_precision)  # type: ignore[attr-defined]
    yield _float32_products(matmul, "matmul_input", "torch.backends.mkldnn.matmul.fp32_precision", dtypes)
    convolution = _read(lambda: torch.backends.mkldnn.conv.fp32_precision)  # type: ignore[attr-defined]
    yield _float32_products(convolution, "convolution_input", "torch.backends.mkldnn.conv.fp32_precision", dtypes)
    if torch.float16 in dtypes and _read(getattr(torch._C, _FP16_ON_CPU, lambda: None)):
        yield {"accumulate": "float16"}, "float16 reduction is allowed on the cpu"


def _on_cuda(dtypes: Collection[torch.dtype]) -> Iterator[Flag | None]:
    flags = torch.backends.cuda.matmul
    allowed = "tf32" if _read(lambda: flags.allow_tf32) else ""
    yield _float32_products(allowed, "matmul_input", "torch.backends.cuda.matmul.allow_tf32", dtypes)
    allowed = "tf32" if _read(lambda: torch.backends.cudnn.allow_tf32) else ""
    yield _float32_products(allowed, "convolution_input", "torch.backends.cudnn.allow_tf32", dtypes)
    for dtype, word in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        name = f"allow_{word}_reduced_precision_reduction"
        if dtype in dtypes and _read(lambda name=name: getattr(flags, name)):  # type: ignore[misc]
            yield {"split_k": 2}, f"torch.backends.cuda.matmul.{name} is on"
    if torch.float16 in dtypes and _read(lambda: flags.allow_fp16_accumulation):
        yield {"accumulate": "float16"}, "torch.backends.cuda.matmul.allow_fp16_accumulation is on"


def _float32_products(word: Any, knob: str, flag: str, dtypes: Collection[torch.dtype]) -> Flag | None:
    if torch.float32 not in dtypes or word not in _FORMATS:
        return None
    return {knob: _FORMATS[word]}, f"{flag} allows {_FORMATS[word]}"


def _read(flag: Callable[[], Any]) -> Any:
    """Return a flag of PyTorch, None where this version has none of that name."""
    try:
        return flag()
    except (AttributeError, RuntimeError):
        return None
