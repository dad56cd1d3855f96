"""Sums and matrix products whose leading parts are exact, by splitting (Ozaki's scheme).

Values are cut into slices of `bits` bits below a common power of two, the scale of their row. With sigma = 1.5 scale
2^(52 - bits), (x + sigma) - sigma is x rounded to a multiple of scale 2^-bits, and x minus it is exact. Slices are then
integers of at most 2^bits in a common unit, and sums of n of them, or of n of their products, are exact in float64, in
whatever order, as long as they stay below 2^53 units.

Source of the idea: Ozaki, Ogita, Oishi, Rump, Error-free transformations of matrix multiplication by using fast
routines of matrix multiplication and its applications, Numer. Algorithms 59 (2012). Errors are derived below.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from kernels_core.doubles.error_free import two_sum
from kernels_core.doubles.number import INFLATE, DoubleDouble, U, is_zero
from kernels_core.filter.threads import each

Tensor = torch.Tensor
Dims = tuple[int, ...]
Scales = tuple[Tensor, Tensor]
Multiply = Callable[[Tensor, Tensor], Tensor]

_EXPONENT = 0x7FF0000000000000
_PIECE = 1 << 17  # elements: about what a core's cache holds
_LARGEST_SCALE, _SMALLEST_SCALE = 2.0**400, 2.0**-400  # of the rows of a matrix: products of slices stay normal


def row_scale(x: Tensor, dims: Dims) -> Tensor:
    """Return, for each row over `dims` (kept with size 1), a power of two above |x|; 0 for rows of zeros."""
    return power_above(x.abs().amax(dims, keepdim=True))


def power_above(top: Tensor) -> Tensor:
    """Return a power of two above each number, at least 2^-1021; 0 for 0."""
    floor = (top.view(torch.int64) & _EXPONENT).view(torch.float64)
    return torch.where(top > 0, (floor * 2).clamp_(min=2.0**-1021), top)


def slice_off(x: Tensor, scale: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Return x rounded to multiples of scale 2^-bits, and the rest, at most half such a multiple."""
    sigma = scale * (1.5 * 2.0 ** (52 - bits))
    top = (x + sigma).sub_(sigma)
    return top, x - top


def total(a: DoubleDouble, dims: Dims, *, keepdim: bool = False) -> DoubleDouble:
    """Sum over `dims`: two slices exactly, the rest in float64.

    The rest of n values r errs by (n - 1) u sum |r| in any order, and by u |r| each from adding the low parts.
    """
    n = math.prod(a.shape[d] for d in dims)
    if not a.hi.numel() or not dims:
        return a if not dims else _zeros(a, dims, keepdim)
    if (kept := _long(a, dims)) is not None:
        return _in_pieces(a, dims, kept, keepdim)
    bits = 51 - max(1, math.ceil(math.log2(n)))
    scale = row_scale(a.hi, dims)
    first, rest = slice_off(a.hi, scale, bits)
    second, rest = slice_off(rest, scale * 2.0 ** -(bits + 1), bits)
    rest = rest if is_zero(a.lo) else rest.add_(a.lo)
    high, error = two_sum(first.sum(dims, keepdim=keepdim), second.sum(dims, keepdim=keepdim))
    low = error + rest.sum(dims, keepdim=keepdim)
    rad = rest.abs_().sum(dims, keepdim=keepdim).mul_(n * U)
    if not is_zero(a.rad):
        rad = rad.add_(a.rad.expand(a.shape).sum(dims, keepdim=keepdim))
    rad = rad.mul_(1 + 2 * n * U).add_(low.abs(), alpha=U).mul_(INFLATE)
    return DoubleDouble(*two_sum(high, low), rad)


def _long(a: DoubleDouble, dims: Dims) -> int | None:
    """Return a dimension that is kept along which a large tensor is summed up in pieces, if there is one."""
    kept = [d for d in range(a.hi.dim()) if d not in dims and a.shape[d] > 1]
    return max(kept, key=lambda d: a.shape[d]) if kept and a.hi.numel() > 2 * _PIECE else None


def _in_pieces(a: DoubleDouble, dims: Dims, kept: int, keepdim: bool) -> DoubleDouble:
    """Return the sum put together from pieces along a kept dimension, whose temporaries stay in a core's cache."""
    size = a.shape[kept]
    width = max(1, size * _PIECE // a.hi.numel())
    parts = [a.narrow(kept, start, min(width, size - start)) for start in range(0, size, width)]
    pieces = each(lambda part: total(part, dims, keepdim=keepdim), parts, a.hi.device)
    place = kept if keepdim else kept - sum(d < kept for d in dims)
    return DoubleDouble(*(torch.cat(part, place) for part in zip(*((p.hi, p.lo, p.rad) for p in pieces), strict=True)))


def _zeros(a: DoubleDouble, dims: Dims, keepdim: bool) -> DoubleDouble:
    zero = a.hi.sum(dims, keepdim=keepdim)
    return DoubleDouble(zero, zero, zero)


def matmul(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Matrix product over K terms, of matrices or batches of them.

    Operands: |A| R_B + R_A (|B| + R_B), bounded by row and column sums and maxima.
    """
    size = a.shape[-1]
    if not size or not a.hi.numel() or not b.hi.numel():
        return _empty_product(a, b)
    p, q = row_scale(a.hi, (-1,)), row_scale(b.hi, (-2,))
    return bilinear(a, b, torch.matmul, size, (p, q), (p, q), _moved(a, b, size))


def bilinear(
    a: DoubleDouble, b: DoubleDouble, multiply: Multiply, size: int, scales: Scales, places: Scales, moved: Tensor
) -> DoubleDouble:
    """Return a bilinear operation each of whose results is a sum of at most K products, such as a convolution.

    A = A1 + A2 + A3 with slices of t bits below p, a power of two above |A|, and A3 the rest with A's low part; B
    likewise with q. p and q are the same in all terms of one result. A1 B1 and A1 B2 + A2 B1 are exact, since
    2 K 2^(2 t) <= 2^53. What is left,

        A1 B3 + A2 (B - B1) + A3 B,

    is a sum of 3 K products in float64. With s = 2^-t: |A2| <= s p / 2, |B - B1| <= 0.6 s q, |A3| <= (s^2 / 4 + u) p
    <= 0.8 s^2 p as u <= s^2 / 2. Its absolute products add up to at most 2 K s^2 p q, so that it errs by at most
    3 K u (2 K s^2 p q). The roundings of A3, B3 and B - B1 and the low part of B left out in A3 B: 4 K u s^2 p q.
    Together 10 K^2 u s^2 p q, and u |w| for the low part w of the result.

    Args:
        a: the first operand.
        b: the second.
        multiply: the operation on float64 tensors.
        size: K.
        scales: p and q in shapes that broadcast to the operands.
        places: the same in shapes that broadcast to the result.
        moved: what the radii of the operands do.
    """
    bits = (53 - max(1, math.ceil(math.log2(2 * size)))) // 2
    first, second, third = _products(a, b, scales, bits, multiply)
    high, error = two_sum(first, second)
    low = error.add_(third)
    p, q = places
    rad = (p * (float(10 * size * size) * U * 4.0**-bits)) * q
    rad = (low.abs() * U).add_(rad).add_(moved).mul_(INFLATE)
    out = _out_of_range(p) | _out_of_range(q)
    return DoubleDouble(*two_sum(high, low), torch.where(out, torch.inf, rad) if bool(out.any()) else rad)


def _products(
    a: DoubleDouble, b: DoubleDouble, scales: Scales, bits: int, multiply: Multiply
) -> tuple[Tensor, Tensor, Tensor]:
    """Return A1 B1, A1 B2 + A2 B1 and A1 B3 + A2 (B - B1) + A3 B."""
    p, q = scales
    a1, a_rest = slice_off(a.hi, p, bits)
    a2, a3 = slice_off(a_rest, p * 2.0 ** -(bits + 1), bits)
    b1, b_rest = slice_off(b.hi, q, bits)
    b2, b3 = slice_off(b_rest, q * 2.0 ** -(bits + 1), bits)
    a3, b3, b_rest = a3 + a.lo, b3 + b.lo, b_rest + b.lo
    return (multiply(a1, b1), multiply(a1, b2).add_(multiply(a2, b1)),
            multiply(a1, b3).add_(multiply(a2, b_rest)).add_(multiply(a3, b.hi)))  # fmt: skip


def _empty_product(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    zero = a.hi @ b.hi
    return DoubleDouble(zero, zero, zero)


def _moved(a: DoubleDouble, b: DoubleDouble, size: int) -> Tensor:
    """Return what the radii of the operands do, rounded upwards."""
    r_a, r_b = (x.rad.expand(x.shape) for x in (a, b))
    more = 1 + 2 * size * U
    rows, columns = a.hi.abs().sum(-1, keepdim=True), (b.hi.abs() + r_b).sum(-2, keepdim=True)
    return (r_a.amax(-1, keepdim=True) * columns + rows * r_b.amax(-2, keepdim=True)) * more


def _out_of_range(scale: Tensor) -> Tensor:
    return ~((scale <= _LARGEST_SCALE) & ((scale >= _SMALLEST_SCALE) | (scale == 0)))
