"""Casts to 8-bit formats with a declared overflow, for references: plain PyTorch that says what is meant."""

from __future__ import annotations

import torch

from kernels_core.errors import UsageError, nearest
from kernels_core.formats import Format, format_of

Tensor = torch.Tensor
OVERFLOWS = ("saturate", "nan", "inf")


def float8_cast(x: Tensor, dtype: torch.dtype, *, overflow: str) -> Tensor:
    """Return x in an 8-bit format; what rounds beyond the largest value overflows as the kernel is declared to.

    `x.to(dtype)` overflows as PyTorch does: float8_e4m3fn saturates, float8_e5m2 gives infinities, the fnuz formats
    NaN. Kernels differ: CUDA's conversions and Triton's saturate in both formats unless they are told not to, older
    versions of PyTorch gave NaN in float8_e4m3fn. The gradient of what overflows is zero.

    Args:
        x: floating tensor.
        dtype: float8_e4m3fn, float8_e5m2, float8_e4m3fnuz or float8_e5m2fnuz.
        overflow: "saturate" to the largest value, infinities too; "nan"; or "inf", in float8_e5m2.

    Raises:
        UsageError: another dtype, or an overflow that the format does not have.
    """
    fmt = format_of(dtype)
    if dtype.itemsize != 1:
        raise UsageError(f"dtype: expected an 8-bit floating dtype, got {fmt.name}\nuse x.to({dtype})")
    if overflow not in OVERFLOWS or (overflow == "inf" and not fmt.has_inf):
        known = [word for word in OVERFLOWS if word != "inf" or fmt.has_inf]
        raise UsageError(
            f"overflow: {fmt.name} has no overflow {overflow!r}{nearest(overflow, known)}\nknown: {', '.join(known)}"
        )
    if overflow == "saturate":
        return x.clamp(-fmt.max_finite, fmt.max_finite).to(dtype)
    return x.to(dtype) if overflow == "inf" else torch.where(rounds_beyond(x, fmt), float("nan"), x).to(dtype)


def rounds_beyond(x: Tensor, fmt: Format) -> Tensor:
    """Return True where |x| rounds to more than the largest value of F, if there were more.

    Halfway to the value after the largest one is a tie, which goes to the even one of the two.
    """
    halfway = (fmt.max_finite + fmt.first_beyond) / 2
    significand = fmt.max_finite / (fmt.first_beyond - fmt.max_finite)
    return x.abs() > halfway if significand % 2 == 0 else x.abs() >= halfway
