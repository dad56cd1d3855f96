"""Sums and products over dimensions, products of matrices, running sums and products, by ATen's names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from kernels_core.doubles.arithmetic import add, divide, multiply, sqrt, square, subtract
from kernels_core.doubles.exact_sums import matmul, total
from kernels_core.doubles.number import DoubleDouble, exactly, number, unknown
from kernels_core.doubles.order import absolute, largest
from kernels_core.doubles.record import Call, Evaluation, Truth, fine
from kernels_core.rules.cones import normal_dims

Tensor = torch.Tensor
Dims = tuple[int, ...]
Combine = Callable[[DoubleDouble, DoubleDouble], DoubleDouble]


def whole(a: Any) -> DoubleDouble:
    """Return an operand with all its parts in the shape of the tensor."""
    return fine(a).each(lambda part: part)


def summed(call: Call, a: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> DoubleDouble | Truth:
    """Return the sum over dimensions."""
    if not call.value.floating:
        return Truth(call.value.mid, None if a.rad is None else torch.ones((), dtype=torch.bool))
    x = fine(a)
    return total(x, normal_dims(dims, x.hi.dim()), keepdim=keepdim)


def mean(call: Call, a: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> DoubleDouble:
    """Return the mean over dimensions."""
    x = fine(a)
    dims = normal_dims(dims, x.hi.dim())
    return divide(total(x, dims, keepdim=keepdim), _count(x, dims))


def _count(x: DoubleDouble, dims: Dims) -> DoubleDouble:
    return number(float(math.prod(x.shape[d] for d in dims)))


def _centred(x: DoubleDouble, dims: Dims) -> tuple[DoubleDouble, DoubleDouble]:
    middle = divide(total(x, dims, keepdim=True), _count(x, dims))
    return subtract(x, middle), middle


def _variance(x: DoubleDouble, dims: Dims, correction: float | None) -> DoubleDouble:
    freedom = math.prod(x.shape[d] for d in dims) - (1 if correction is None else correction)
    centred, _ = _centred(x, dims)
    return divide(total(square(centred), dims, keepdim=True), number(float(max(0.0, freedom))))


def kept(x: DoubleDouble, dims: Dims, keepdim: bool) -> DoubleDouble:
    """Return a result with the reduced dimensions, which it has, dropped unless they are to be kept."""
    return x if keepdim or not dims else x.each(lambda part: part.squeeze(dims))


def variance(call: Call, a: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> DoubleDouble:
    """Return the variance."""
    x = whole(a)
    dims = normal_dims(dim, x.hi.dim())
    return kept(_variance(x, dims, correction), dims, keepdim)


def deviation(call: Call, a: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> DoubleDouble:
    """Return the standard deviation."""
    return sqrt(variance(call, a, dim, correction=correction, keepdim=keepdim))


def variance_and_mean(
    call: Call, a: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> list[DoubleDouble]:
    """Return variance and mean."""
    return [variance(call, a, dim, correction=correction, keepdim=keepdim), mean(call, a, dim, keepdim)]


def vector_norm(call: Call, a: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> DoubleDouble:
    """Return the norm of order 1, 2 or infinity; others are unknown."""
    x = absolute(whole(a))
    dims, order = normal_dims(dim, x.hi.dim()), 2.0 if order is None else float(order)
    if order == 1:
        return total(x, dims, keepdim=keepdim)
    if order == math.inf and dims:
        return largest(x, dims, keepdim=keepdim)
    found = sqrt(total(square(x), dims, keepdim=keepdim))
    return found if order == 2 else unknown(found, torch.ones_like(found.hi, dtype=torch.bool))


# Matrices -------------------------------------------------------------------------------------------------------------


def product(call: Call, a: Any, b: Any, *_: Any) -> DoubleDouble:
    """Return the product of matrices or batches of them."""
    return matmul(whole(a), whole(b))


def matrix_vector(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return the product of a matrix and a vector."""
    found = matmul(whole(a), whole(b).unsqueeze(-1))
    return found.each(lambda part: part.squeeze(-1))


def inner(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return the inner product of two vectors."""
    found = matmul(whole(a).unsqueeze(0), whole(b).unsqueeze(1))
    return found.each(lambda part: part.reshape(()))


def with_summand(call: Call, summand: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> DoubleDouble:
    """Return beta summand + alpha a b."""
    found = product(call, a, b)
    if alpha != 1:
        found = multiply(found, number(float(alpha)))
    if beta == 0:
        return found
    start = fine(summand)
    return add(found, start if beta == 1 else multiply(start, number(float(beta))))


# Running sums and products -------------------------------------------------------------------------------------------


def _scan(combine: Combine) -> Evaluation:
    """Return the evaluation of running sums or products, by doubling the number of terms."""

    def evaluate(call: Call, a: Any, dim: int, **_: Any) -> DoubleDouble:
        found = whole(a)
        if not found.hi.dim():
            return found
        n, width = found.shape[dim], 1
        while width < n:
            head = found.narrow(dim, 0, width)
            rest = combine(found.narrow(dim, width, n - width), found.narrow(dim, 0, n - width))
            parts = zip((head.hi, head.lo, head.rad), (rest.hi, rest.lo, rest.rad), strict=True)
            found = DoubleDouble(*(torch.cat([x.expand(head.shape), y.expand(rest.shape)], dim) for x, y in parts))
            width *= 2
        return found

    return evaluate


def _multiplied(a: DoubleDouble, dim: int, keepdim: bool) -> DoubleDouble:
    """Return the product over one dimension, by halves."""
    found = a.each(lambda part: part)
    if not found.shape[dim]:
        return exactly(found.hi.prod(dim, keepdim=keepdim))
    while (n := found.shape[dim]) > 1:
        both = multiply(found.narrow(dim, 0, n // 2), found.narrow(dim, n // 2, n // 2))
        last = found.narrow(dim, n - 1, n % 2)
        parts = zip((both.hi, both.lo, both.rad), (last.hi, last.lo, last.rad), strict=True)
        found = DoubleDouble(*(torch.cat([x.expand(both.shape), y.expand(last.shape)], dim) for x, y in parts))
    return found if keepdim else found.each(lambda part: part.squeeze(dim))


def product_over(call: Call, a: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> DoubleDouble | Truth:
    """Return the product over one dimension, or all."""
    if not call.value.floating:
        return Truth(call.value.mid, None if a.rad is None else torch.ones((), dtype=torch.bool))
    x = whole(a)
    if dim is None or not x.hi.dim():
        return _multiplied(x.each(lambda part: part.reshape(-1)), 0, False)
    for d in sorted(normal_dims(dim, x.hi.dim()), reverse=True):
        x = _multiplied(x, d, keepdim)
    return x


EVALUATIONS: dict[str, Evaluation] = {
    "aten.sum.default": summed,
    "aten.sum.dim_IntList": summed,
    "prims.sum.default": summed,
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.var.correction": variance,
    "aten.std.correction": deviation,
    "aten.var_mean.correction": variance_and_mean,
    "aten.linalg_vector_norm.default": vector_norm,
    "aten.mm.default": product,
    "aten.bmm.default": product,
    "aten.mv.default": matrix_vector,
    "aten.dot.default": inner,
    "aten.vdot.default": inner,
    "aten.addmm.default": with_summand,
    "aten.baddbmm.default": with_summand,
    "aten.cumsum.default": _scan(add),
    "aten.cumprod.default": _scan(multiply),
    "aten.prod.default": product_over,
    "aten.prod.dim_int": product_over,
    "prims.prod.default": product_over,
}
