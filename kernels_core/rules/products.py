"""Products over a dimension, and running products.

With bounds X_i, for every order of the n - 1 multiplications:

    |prod x'_i - prod x_i| <= prod (|x_i| + X_i) - prod |x_i|
    rounding:  ((1 + u)^(n-1) - 1) prod (|x_i| + X_i)  and  n eta prod max(1, |x_i| + X_i)  for underflow on the way

The first is built up without cancellation by (x, X)(y, Y) = (x y, |x| Y + X (|y| + Y)), pairwise; each factor of the
last is one through which an underflowed partial product may still be multiplied.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.cones import normal_dims, reduction_cone
from kernels_core.rules.movement import before
from kernels_core.rules.operands import integral, is_integral, parts
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.scans import prefix_cone, prefix_exact, prefixes, scan

Pair = tuple[torch.Tensor, torch.Tensor]


def times(a: Pair, b: Pair) -> Pair:
    """Return the product of two values with their bounds."""
    return a[0] * b[0], a[0].abs() * b[1] + a[1] * (b[0].abs() + b[1])


def _folded(value: Pair, dim: int) -> Pair:
    """Return the product along `dim` (kept with size 1), pairwise."""
    while value[0].shape[dim] > 1:
        n = value[0].shape[dim]
        half = n // 2
        low, high, rest = (
            tuple(t.narrow(dim, start, size) for t in value)
            for start, size in ((0, half), (half, half), (2 * half, n % 2))
        )
        product = times(low, high)  # type: ignore[arg-type]
        value = tuple(torch.cat((p, r), dim) for p, r in zip(product, rest, strict=True)) if n % 2 else product  # type: ignore[assignment]
    return value


def _rounded(local: Local, mid: torch.Tensor, bound: torch.Tensor, n: Any, growth: torch.Tensor) -> Enclosure:
    """Add the roundings of n - 1 multiplications (`n` a number or a tensor)."""
    count = torch.as_tensor(n, dtype=torch.float64, device=mid.device)
    slope = torch.expm1((count - 1).clamp(min=0) * math.log1p(local.u_acc))
    upper = mid.abs() + bound
    error = bound + upper * slope + growth * (count * local.eta_acc)
    return local.stored(Enclosure(mid, error.mul_(1 + (2 * _depth(n) + 8) * 2.0**-50)))


def _depth(n: Any) -> int:
    largest = int(n.max()) if isinstance(n, torch.Tensor) else int(n)
    return max(1, largest).bit_length()


def _product(local: Local, a: Enclosure, dims: tuple[int, ...], keepdim: bool) -> Enclosure:
    mid, bound = parts(a)
    n = math.prod(mid.shape[d] for d in dims)
    exact = torch.zeros_like(mid) if bound is None else bound.expand(mid.shape)
    value, growth = (mid, exact), (mid.abs() + exact).clamp_(min=1.0)
    for dim in dims:
        if mid.shape[dim] == 0:
            growth = growth.prod(dim, keepdim=True)  # ones: the empty product
            value = growth, torch.zeros_like(growth)
            continue
        value = _folded(value, dim)
        growth = growth.prod(dim, keepdim=True)
    found = _rounded(local, value[0], value[1], n, growth)
    if keepdim or not dims:
        return found
    return Enclosure(found.mid.squeeze(dims), found.bound_or_zero().squeeze(dims))


def prod_dims(
    local: Local, a: Enclosure, dims: Any = None, keepdim: bool = False, *, dtype: Any = None, **_: Any
) -> Enclosure:
    """Product over dimensions (all of them for None)."""
    if is_integral(local):
        return integral(local, a, *([] if dims is None else [dims]), *([keepdim] if keepdim else []))
    return _product(local, a, normal_dims(dims, a.mid.dim()), keepdim)


def cumprod(local: Local, a: Enclosure, dim: int, *, dtype: Any = None) -> Enclosure:
    """Running product."""
    if is_integral(local):
        return integral(local, a, dim)
    mid, bound = parts(a)
    if not mid.dim() or not mid.numel():
        return Enclosure(mid, bound)
    exact = torch.zeros_like(mid) if bound is None else bound.expand(mid.shape)
    value = scan(times, (mid, exact), dim)
    growth = (mid.abs() + exact).clamp_(min=1.0).cumprod(dim)
    return _rounded(local, value[0], value[1], prefixes(mid, dim), growth)


def _cone(call: Any) -> list[np.ndarray]:
    meta = call.step.operand_metas[0]
    return [reduction_cone(normal_dims(call.step.argument(1, "dim"), len(meta.shape)), meta, call.index)]


def _exact(call: Any, values: Any) -> Any:
    one = call.numbers.real(1) if call.meta.dtype.is_floating_point else 1
    return (
        np.multiply.reduce(values, axis=1, initial=one) if values.shape[1] else np.full(len(values), one, dtype=object)
    )


FAMILY = Family()
FAMILY.add(
    Rule("aten.prod.default", prod_dims, _cone, _exact),
    Rule("aten.prod.dim_int", prod_dims, _cone, _exact),
    Rule("prims.prod.default", prod_dims, _cone, _exact),
    Rule(
        "aten.cumprod.default",
        cumprod,
        prefix_cone,
        prefix_exact(lambda call, values: np.multiply.reduce(values)),
        before(1),
        aligned="left",
    ),
)
