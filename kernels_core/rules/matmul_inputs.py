"""Operands of matrix products as a kernel may read them: rounded to the format that `matmul_input` declares.

For an operand x with bound X, read as x'' with |x'' - x'| <= v |x'| + e for every legal x':

    |x'' - x| <= X (1 + v) + v |x| + e;   0 where x is exact and the format holds it

v is 2^-10 for TF32, which hardware truncates (off by less than one unit in the 10th fraction bit), and the unit
roundoff for bfloat16 and float16, which are rounded to nearest; e is what the format loses below its normal range.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.formats import BFLOAT16, FLOAT16, FLOAT32, Format, format_of


class _Input(NamedTuple):
    """Format, relative error and absolute error of reading an operand."""

    format: Format
    relative: float
    absolute: float


TF32 = Format("tf32", torch.float32, 11, FLOAT32.emin, FLOAT32.emax, 2.0**127 * (2 - 2.0**-10))
_INPUTS = {
    "tf32": _Input(TF32, 2.0**-10, 2.0**-136),
    "bfloat16": _Input(BFLOAT16, BFLOAT16.unit_roundoff, BFLOAT16.eta),
    "float16": _Input(FLOAT16, FLOAT16.unit_roundoff, FLOAT16.eta),
}


def as_read(local: Local, value: Enclosure, *, convolution: bool = False) -> Enclosure:
    """Return the enclosure of an operand of a product (or of a convolution) as the kernel may read it."""
    profile = local.profile
    declared = "" if profile is None else profile.matmul_input
    if profile is not None and convolution:
        declared = declared or profile.convolution_input
    if not declared or _fits(format_of(local.step.operand_metas[-1].dtype), _INPUTS[declared].format):
        return value
    fmt, relative, absolute = _INPUTS[declared]
    own = value.mid.abs().mul_(relative * INFLATE).add_(absolute)
    if value.bound is not None:
        return Enclosure(value.mid, own.add_(value.bound, alpha=(1 + relative) * INFLATE))
    lost = ~_holds(fmt, value.mid) & value.mid.isfinite()
    return Enclosure(value.mid, own.mul_(lost)) if bool(lost.any()) else value


def narrowed(value: torch.Tensor, name: str) -> torch.Tensor:
    """Return float64 values as a kernel may read them: cut to TF32, or rounded to bfloat16 or float16."""
    if name != "tf32":
        return value.to(_INPUTS[name].format.dtype).to(torch.float64)
    bits = value.to(torch.float32).contiguous().view(torch.int32)
    return bits.bitwise_and(~0x1FFF).view(torch.float32).to(torch.float64)


def _fits(inner: Format, outer: Format) -> bool:
    return inner.precision <= outer.precision and inner.emin >= outer.emin and inner.emax <= outer.emax


def _holds(fmt: Format, x: torch.Tensor) -> torch.Tensor:
    """Return True where the format has the value; TF32 is float32 with its last 13 bits zero."""
    if fmt is not TF32:
        return x.to(fmt.dtype).to(torch.float64) == x
    narrow = x.to(torch.float32)
    return (narrow.to(torch.float64) == x) & (narrow.view(torch.int32).bitwise_and(0x1FFF) == 0)
