"""Matrix products.

With A, B the bounds of the operands and K the inner dimension, for any order of summation, with or without FMA:

    |c' - c| <= |a| B + A (|b| + B) + K u_acc (|a| + A)(|b| + B) + K eta_acc

Source: Jeannerod and Rump, SIMAX 34 (2013), theorem 4.2: n u |x|^T |y| without a limit on n, barring underflow in the
products; each of the K products may underflow by eta_acc / 2, which the further additions can only add up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels_core.arithmetic import INFLATE, Local
from kernels_core.enclosure import Enclosure
from kernels_core.rules.record import Family, Rule

Product = Any


def product(local: Local, a: Enclosure, b: Enclosure) -> Enclosure:
    """Return the enclosure of a @ b in the accumulator, before it is stored."""
    inner = a.mid.shape[-1]
    multiply = torch.mm if a.mid.dim() == 2 else torch.bmm
    mid = multiply(a.mid, b.mid)
    slope = inner * local.u_acc
    upper_a, upper_b = a.magnitude_upper(), b.magnitude_upper()
    if a.bound is None and b.bound is None:
        bound = nonnegative_product(multiply, upper_a, upper_b).mul_(slope)
    elif a.bound is None:
        bound = nonnegative_product(multiply, upper_a, b.bound + slope * upper_b)  # type: ignore[operator]
    else:
        bound = nonnegative_product(multiply, a.bound + slope * upper_a, upper_b)
        if b.bound is not None:
            bound += nonnegative_product(multiply, a.mid.abs(), b.bound)
    return Enclosure(mid, bound.add_(inner * local.eta_acc).mul_(INFLATE))


def nonnegative_product(multiply: Product, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return an upper bound of a @ b for non-negative float64 matrices, computed in float32 where their range allows.

    Scaled by powers of two so that the largest entry of each is in [1, 2), entries below 2^-60 of it are raised to
    that, so that nothing underflows; the float32 product then errs by at most K u sum(ab) + K eta (see the module) plus
    two roundings of the inputs, which the factor 1 + (2 K + 8) u covers.
    """
    inner = a.shape[-1]
    (x, scale_x), (y, scale_y) = _normalised(a), _normalised(b)
    if x is None or y is None:
        return multiply(a, b).mul_(1 + (inner + 4) * 2.0**-52)
    result = multiply(x, y).to(torch.float64)
    return result.mul_((1 + (2 * inner + 8) * 2.0**-24) * scale_x * scale_y)


def _normalised(a: torch.Tensor) -> tuple[torch.Tensor | None, float]:
    """Return a float32 copy scaled to [2^-60, 2), or None where the range of the entries does not allow it."""
    largest = float(a.max()) if a.numel() else 0.0
    if a.numel() < 1 << 14 or not 2.0**-900 < largest < 2.0**900:
        return None, 1.0
    scale = 2.0 ** (np.frexp(largest)[1] - 1)
    return (a * (1 / scale)).to(torch.float32).clamp_(min=2.0**-60), float(scale)


def _matrix(local: Local, a: Enclosure, b: Enclosure) -> Enclosure:
    return local.stored(product(local, a, b))


def _indices(call: Any) -> list[np.ndarray]:
    """Row of the first, column of the second: (n, K) each."""
    first, second = call.step.operand_metas[-2:]
    *batch, rows, inner = first.shape
    columns = second.shape[-1]
    index, column = np.divmod(call.index, columns)
    batch_index, row = np.divmod(index, rows)
    k = np.arange(inner)
    a = (batch_index * rows + row)[:, None] * inner + k
    b = (batch_index[:, None] * inner + k) * columns + column[:, None]
    return [a, b]


def inner_products(call: Any, a: Any, b: Any) -> Any:
    """Return the exact inner products along the second axis."""
    zero = call.numbers.real(0)
    return np.add.reduce(a * b, axis=1, initial=zero) if a.shape[1] else np.full(a.shape[0], zero, dtype=object)


FAMILY = Family()
FAMILY.add(
    Rule("aten.mm.default", _matrix, _indices, inner_products),
    Rule("aten.bmm.default", _matrix, _indices, inner_products),
)
