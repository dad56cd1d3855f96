"""Matrix products: float32 accumulation for 16-bit inputs, one rounding of the result."""

from __future__ import annotations

from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def matmul(A: Tensor, B: Tensor) -> Tensor:
    """Return A @ B, with broadcast leading dimensions.

    Args:
        A: [..., M, K].
        B: [..., K, N], of the dtype of A.
    """
    return (wide(A) @ wide(B)).to(A.dtype)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight^T + bias; the bias is added before the one rounding.

    Args:
        input: [..., K].
        weight: [N, K].
        bias: [N].
    """
    result = wide(input) @ wide(weight).transpose(-1, -2)
    return (result if bias is None else result + wide(bias)).to(input.dtype)


ENTRIES = {"matmul": Reference(matmul, "matmul"), "linear": Reference(linear, "linear")}
