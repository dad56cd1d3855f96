"""Sums, products of matrices, extrema and softmax over dimensions, by ATen's names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from kernels_core.doubles import functions
from kernels_core.doubles.arithmetic import add, divide, multiply, negate, reciprocal, sqrt, square, subtract
from kernels_core.doubles.exact_sums import matmul, total
from kernels_core.doubles.number import DoubleDouble, exactly, number, unknown
from kernels_core.doubles.order import absolute, below, largest, unordered
from kernels_core.doubles.record import Call, Evaluation, Truth, fine
from kernels_core.rules.cones import normal_dims

Tensor = torch.Tensor
Dims = tuple[int, ...]
Combine = Callable[[DoubleDouble, DoubleDouble], DoubleDouble]


def _whole(a: Any) -> DoubleDouble:
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


def _kept(x: DoubleDouble, dims: Dims, keepdim: bool) -> DoubleDouble:
    return x if keepdim or not dims else x.each(lambda part: part.squeeze(dims))


def variance(call: Call, a: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> DoubleDouble:
    """Return the variance."""
    x = _whole(a)
    dims = normal_dims(dim, x.hi.dim())
    return _kept(_variance(x, dims, correction), dims, keepdim)


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
    x = absolute(_whole(a))
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
    return matmul(_whole(a), _whole(b))


def matrix_vector(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return the product of a matrix and a vector."""
    found = matmul(_whole(a), _whole(b).unsqueeze(-1))
    return found.each(lambda part: part.squeeze(-1))


def inner(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return the inner product of two vectors."""
    found = matmul(_whole(a).unsqueeze(0), _whole(b).unsqueeze(1))
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


# Extrema --------------------------------------------------------------------------------------------------------------


def _largest(a: Any, dims: Dims, keepdim: bool, sign: int) -> DoubleDouble:
    x = _whole(a)
    if not dims:
        return x
    return largest(x, dims, keepdim=keepdim) if sign > 0 else negate(largest(negate(x), dims, keepdim=keepdim))


def extremum(sign: int) -> Evaluation:
    """Return the evaluation of a maximum (1) or minimum (-1) over dimensions."""

    def evaluate(call: Call, a: Any, dims: Any = (), keepdim: bool = False) -> DoubleDouble:
        return _largest(a, normal_dims(dims, a.mid.dim()), keepdim, sign)

    return evaluate


def extremum_and_index(sign: int) -> Evaluation:
    """Return the evaluation of a maximum or minimum over one dimension, with its index."""

    def evaluate(call: Call, a: Any, dim: int, keepdim: bool = False) -> list[DoubleDouble | Truth]:
        dims = normal_dims(dim, a.mid.dim())
        value = _largest(a, dims, True, sign)
        x = _whole(a)
        gap = absolute(subtract(x, value))
        near = ~(gap.hi > gap.rad * (1 + 2.0**-40))
        exact = ~near | ((x.rad == 0) & (x.lo == 0) & (value.lo == 0))
        doubt = (near.sum(dims, keepdim=True) > 1) & ~exact.all(dims[0], keepdim=True) if dims else near & ~near
        doubt = doubt if keepdim or not dims else doubt.squeeze(dims)
        return [_kept(value, dims, keepdim), Truth(call.values[1].mid, doubt)]

    return evaluate


def extremum_weight(call: Call, a: Any, *, dims: Dims, sign: int) -> DoubleDouble:
    """Return 1 / k for the k elements that are the extremum, where it is certain which these are, and 0 for others."""
    x = _whole(a)
    value = _largest(a, dims, True, sign)
    gap = absolute(subtract(x, value))
    near = ~(gap.hi > gap.rad * (1 + 2.0**-40))
    same = (gap.hi == 0) & (x.rad + value.rad == 0)
    count = near.sum(dims, keepdim=True).to(torch.float64) if dims else near.to(torch.float64)
    contested = near & ~same
    if dims:
        contested = contested.to(torch.float64).amax(dims, keepdim=True) > 0
    found = divide(exactly(near.to(torch.float64)), exactly(count))
    return unknown(found, ((count != 1) & contested).expand(found.shape) | value.hi.isnan())


def sort(
    call: Call, a: Any, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> list[DoubleDouble | Truth]:
    """Return values in order, and their places: certain where every neighbour in the row is in order for certain.

    Else order statistics move by at most the largest radius of the row, and float64, which sorts by the high parts, may
    have two low parts the wrong way round.
    """
    place, x = call.values[1].mid, _whole(a)
    if not place.dim() or not place.shape[dim]:
        return [x, Truth(place, None)]
    found = x.each(lambda part: part.gather(dim, place))
    first, second = (found.narrow(dim, start, place.shape[dim] - 1) for start in (0, 1))
    close = unordered(first, second) | ((first.hi == second.hi) & (first.lo != second.lo))
    open_ = (close.sum(dim, keepdim=True) > 0).expand(place.shape)
    moved = found.rad.amax(dim, keepdim=True) + found.hi.abs() * 2.0**-52
    return [DoubleDouble(found.hi, found.lo, torch.where(open_, moved, found.rad)), Truth(place, open_)]


# Softmax --------------------------------------------------------------------------------------------------------------


def _top(x: Tensor, dims: Dims) -> Tensor:
    """Return the largest element of each row, 0 of a row without elements."""
    if any(x.shape[d] == 0 for d in dims):
        return x.sum(dims, keepdim=True)
    return x.amax(dims, keepdim=True) if dims else x


def _shifted(a: Any, dims: Dims) -> tuple[DoubleDouble, DoubleDouble]:
    """Return x - m and m, the largest float64 midpoint of the row."""
    x = _whole(a)
    top = _top(x.hi, dims)
    zero = top.new_zeros(())
    shift = DoubleDouble(torch.where(top.isfinite(), top, 0.0), zero, zero)
    found = subtract(x, shift)
    none = (x.hi == -torch.inf) & (x.rad == 0)  # a term that is certainly zero
    if bool(none.any()):
        found = DoubleDouble(*(torch.where(none, v, part) for v, part in
                               zip((-torch.inf, 0.0, 0.0), (found.hi, found.lo, found.rad), strict=True)))  # fmt: skip
    return found, shift


def softmax(call: Call, a: Any, dim: int, half_to_float: bool = False) -> DoubleDouble:
    """Return exp(x - m) / sum exp(x - m)."""
    dims = normal_dims(dim, a.mid.dim())
    powers = functions.exp(_shifted(a, dims)[0])
    return multiply(powers, reciprocal(total(powers, dims, keepdim=True)))


def _logarithm(shifted: DoubleDouble, dims: Dims) -> DoubleDouble:
    return functions.log(total(functions.exp(shifted), dims, keepdim=True))


def log_softmax(call: Call, a: Any, dim: int, half_to_float: bool = False) -> DoubleDouble:
    """Return x - m - log sum exp(x - m)."""
    dims = normal_dims(dim, a.mid.dim())
    shifted, _ = _shifted(a, dims)
    return subtract(shifted, _logarithm(shifted, dims))


def logsumexp(call: Call, a: Any, dim: Any, keepdim: bool = False) -> DoubleDouble:
    """Return m + log sum exp(x - m)."""
    dims = normal_dims(dim, a.mid.dim())
    shifted, top = _shifted(a, dims)
    return _kept(add(_logarithm(shifted, dims), top), dims, keepdim)


def softmax_backward(call: Call, grad: Any, output: Any, dim: int, input_dtype: Any = None) -> DoubleDouble:
    """Return p (g - sum g p)."""
    g, p = fine(grad), fine(output)
    both = multiply(g, p)
    return multiply(p, subtract(g, total(both, normal_dims(dim, both.hi.dim()), keepdim=True)))


def log_softmax_backward(call: Call, grad: Any, output: Any, dim: int, input_dtype: Any = None) -> DoubleDouble:
    """Return g - exp(y) sum g."""
    g = _whole(grad)
    return subtract(g, multiply(functions.exp(fine(output)), total(g, normal_dims(dim, g.hi.dim()), keepdim=True)))


def log_add_exp(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return max(a, b) + log(1 + exp(-|a - b|))."""
    x, y = fine(a), fine(b)
    gap = subtract(x, y)
    top = DoubleDouble(*(torch.where(below(x, y), p, q) for p, q in ((y.hi, x.hi), (y.lo, x.lo), (y.rad, x.rad))))
    rest = functions.log1p(functions.exp(negate(absolute(gap))))
    found = add(top, rest)
    return DoubleDouble(found.hi, found.lo, found.rad + gap.rad)  # where the radii leave open which is the larger


# Running sums and products -------------------------------------------------------------------------------------------


def _scan(combine: Combine) -> Evaluation:
    """Return the evaluation of running sums or products, by doubling the number of terms."""

    def evaluate(call: Call, a: Any, dim: int, **_: Any) -> DoubleDouble:
        found = _whole(a)
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
    x = _whole(a)
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
    "aten.amax.default": extremum(1),
    "aten.amin.default": extremum(-1),
    "prims.amax.default": extremum(1),
    "prims.amin.default": extremum(-1),
    "exactref.extremum_weight": extremum_weight,
    "aten.sort.default": sort,
    "aten.sort.stable": sort,
    "aten.max.dim": extremum_and_index(1),
    "aten.min.dim": extremum_and_index(-1),
    "aten._softmax.default": softmax,
    "aten._log_softmax.default": log_softmax,
    "aten.logsumexp.default": logsumexp,
    "aten._softmax_backward_data.default": softmax_backward,
    "aten._log_softmax_backward_data.default": log_softmax_backward,
    "aten.logaddexp.default": log_add_exp,
    "aten.cumsum.default": _scan(add),
    "aten.cumprod.default": _scan(multiply),
    "aten.prod.default": product_over,
    "aten.prod.dim_int": product_over,
    "prims.prod.default": product_over,
}
