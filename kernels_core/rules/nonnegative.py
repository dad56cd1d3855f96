"""Products of non-negative matrices rounded upwards: what the bound of a matrix product is made of.

Bounds need few digits, so the product runs in float32 where the range of the entries allows it. Each operand is
w = s |x| + t X, scaled by a power of two so that its entries are at most 2; entries below 2^-60 are raised to that, so
that every product is at least 2^-120 and nothing underflows. Forming w in float64 and rounding it to float32 errs by at
most (1 + 2^-20) u relatively per entry, u = 2^-24, and the product by K u sum(w_a w_b) in any order (Jeannerod and
Rump, SIMAX 34 (2013), theorem 4.2). Hence for K u <= 1/8

    computed >= (1 - (1 + 2^-20) u)^2 (1 - K u) exact  and  computed (1 + (2 K + 8) u) >= exact
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from kernels_core.errors import InvariantError
from kernels_core.filter.arithmetic import INFLATE
from kernels_core.filter.threads import share

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Copies = dict[Any, Any]

_PIECE = 1 << 16  # elements converted at a time: the float64 temporaries stay in the cache
_SMALLEST = 1 << 14  # operands with fewer elements are not worth the conversion
_LARGEST_INNER = 1 << 21


class Weight(NamedTuple):
    """The non-negative matrix s |mid| + t bound, not formed; mid or bound may be absent."""

    mid: torch.Tensor | None
    bound: torch.Tensor | None = None
    s: float = 1.0
    t: float = 1.0

    @property
    def shape(self) -> torch.Size:
        """Shape of the matrix."""
        return self._present()[0].shape

    def _present(self) -> list[torch.Tensor]:
        return [part for part in (self.mid, self.bound) if part is not None]

    def formed(self) -> torch.Tensor:
        """Return the matrix in float64."""
        found = _weighted(self.mid, self.bound, self.s, self.t)
        return found if found.shape == self.shape else found.expand(self.shape)


def _weighted(mid: torch.Tensor | None, bound: torch.Tensor | None, s: float, t: float) -> torch.Tensor:
    if mid is None:
        if bound is None:
            raise InvariantError("a weight without parts")
        return bound * t
    found = mid.abs()
    if s != 1.0:
        found.mul_(s)
    return found if bound is None else found.add_(bound, alpha=t)


def nonnegative_product(
    multiply: Product, a: Weight, b: Weight, copies: Copies, factor: float = 1.0, inner: int | None = None
) -> torch.Tensor:
    """Return an upper bound of factor a @ b in float64; 1 + 2^-47 covers the float64 roundings of the scales.

    Args:
        multiply: torch.mm, torch.bmm, or another sum of products of one element of each operand (a convolution).
        a: non-negative.
        b: non-negative.
        copies: where float32 copies of exact operands are kept, for the products of the gradients that read them again.
        factor: not negative.
        inner: K, the number of products in one sum; the last dimension of `a` by default.
    """
    inner = a.shape[-1] if inner is None else inner
    if inner <= _LARGEST_INNER and _float32_is_float32():
        x, y = _scaled(a, copies), _scaled(b, copies)
        if x is not None and y is not None:
            factor *= (1 + (2 * inner + 8) * 2.0**-24) * INFLATE * x[1] * y[1]
            return multiply(x[0], y[0]).to(torch.float64).mul_(factor)
    return multiply(a.formed(), b.formed()).mul_(factor * (1 + (inner + 8) * 2.0**-52) * INFLATE)


def _float32_is_float32() -> bool:
    """Return False where the user lets float32 products run in tf32 or bfloat16."""
    return torch.get_float32_matmul_precision() == "highest"


def _scaled(w: Weight, copies: Copies) -> tuple[torch.Tensor, float] | None:
    """Return a float32 copy with entries in [2^-60, 2] and its scale, or None where the range does not allow it."""
    if w.shape.numel() < _SMALLEST:
        return None
    turned, mid, bound = _flat(w)
    kept = None
    if mid is not None and bound is None and w.s == 1.0 and mid.data_ptr() == w.mid.data_ptr():  # type: ignore[union-attr]
        kept = (mid.data_ptr(), len(mid))  # the entry holds `mid`, so that its address stays taken
    if kept not in copies:
        found = _float32(mid, bound, w.s, w.t)
        if kept is None or found is None:
            return None if found is None else (_in_shape(found[0], w, turned), found[1])
        copies[kept] = (*found, mid)
    return _in_shape(copies[kept][0], w, turned), copies[kept][1]


def _float32(
    mid: torch.Tensor | None, bound: torch.Tensor | None, s: float, t: float
) -> tuple[torch.Tensor, float] | None:
    largest = _largest(mid, bound, s, t)
    if not 2.0**-900 < largest < 2.0**900:
        return None
    scale = 2.0 ** (int(np.frexp(largest)[1]) - 1)
    like = mid if mid is not None else bound
    result = torch.empty_like(like, dtype=torch.float32)  # type: ignore[arg-type]
    step = _PIECE if result.device.type == "cpu" else len(result)

    def work(starts: Iterator[int]) -> None:
        for start in starts:
            x, e = (None if part is None else part[start : start + step] for part in (mid, bound))
            result[start : start + step] = _weighted(x, e, s / scale, t / scale).clamp_(min=2.0**-60)

    share(work, list(range(0, len(result), step)), result.device)
    return result, scale


def _in_shape(flat: torch.Tensor, w: Weight, turned: bool) -> torch.Tensor:
    *batch, rows, columns = w.shape
    return flat.view(*batch, columns, rows).mT if turned else flat.view(w.shape)


def _flat(w: Weight) -> tuple[bool, torch.Tensor | None, torch.Tensor | None]:
    """Return mid and bound in the order of memory; True where that is the order of the transposed matrix."""
    parts = [None if part is None else part.expand(w.shape) for part in (w.mid, w.bound)]
    found = [part for part in parts if part is not None]
    turned = not found[0].is_contiguous() and found[0].mT.is_contiguous()
    mid, bound = (None if part is None else (part.mT if turned else part).reshape(-1) for part in parts)
    return turned, mid, bound


def _largest(mid: torch.Tensor | None, bound: torch.Tensor | None, s: float, t: float) -> float:
    """Return an upper bound of the largest entry, NaN where an entry is NaN."""
    low, high = (0.0, 0.0) if mid is None else (float(end) for end in mid.aminmax())
    largest = s * max(-low, high) if low == low else low
    return largest if bound is None else largest + t * float(bound.amax())
