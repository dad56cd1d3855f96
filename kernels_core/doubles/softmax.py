"""Softmax, its logarithm and their derivatives, by ATen's names."""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.doubles import functions
from kernels_core.doubles.arithmetic import add, multiply, negate, reciprocal, subtract
from kernels_core.doubles.exact_sums import total
from kernels_core.doubles.number import DoubleDouble
from kernels_core.doubles.order import absolute, below
from kernels_core.doubles.record import Call, Evaluation, fine
from kernels_core.doubles.reductions import Dims, kept, whole
from kernels_core.rules.cones import normal_dims

Tensor = torch.Tensor


def _top(x: Tensor, dims: Dims) -> Tensor:
    """Return the largest element of each row, 0 of a row without elements."""
    if any(x.shape[d] == 0 for d in dims):
        return x.sum(dims, keepdim=True)
    return x.amax(dims, keepdim=True) if dims else x


def _shifted(a: Any, dims: Dims) -> tuple[DoubleDouble, DoubleDouble]:
    """Return x - m and m, the largest float64 midpoint of the row."""
    x = whole(a)
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
    return kept(add(_logarithm(shifted, dims), top), dims, keepdim)


def softmax_backward(call: Call, grad: Any, output: Any, dim: int, input_dtype: Any = None) -> DoubleDouble:
    """Return p (g - sum g p)."""
    g, p = fine(grad), fine(output)
    both = multiply(g, p)
    return multiply(p, subtract(g, total(both, normal_dims(dim, both.hi.dim()), keepdim=True)))


def log_softmax_backward(call: Call, grad: Any, output: Any, dim: int, input_dtype: Any = None) -> DoubleDouble:
    """Return g - exp(y) sum g."""
    g = whole(grad)
    return subtract(g, multiply(functions.exp(fine(output)), total(g, normal_dims(dim, g.hi.dim()), keepdim=True)))


def log_add_exp(call: Call, a: Any, b: Any) -> DoubleDouble:
    """Return max(a, b) + log(1 + exp(-|a - b|))."""
    x, y = fine(a), fine(b)
    gap = subtract(x, y)
    top = DoubleDouble(*(torch.where(below(x, y), p, q) for p, q in ((y.hi, x.hi), (y.lo, x.lo), (y.rad, x.rad))))
    rest = functions.log1p(functions.exp(negate(absolute(gap))))
    found = add(top, rest)
    return DoubleDouble(found.hi, found.lo, found.rad + gap.rad)  # where the radii leave open which is the larger


EVALUATIONS: dict[str, Evaluation] = {
    "aten._softmax.default": softmax,
    "aten._log_softmax.default": log_softmax,
    "aten.logsumexp.default": logsumexp,
    "aten._softmax_backward_data.default": softmax_backward,
    "aten._log_softmax_backward_data.default": log_softmax_backward,
    "aten.logaddexp.default": log_add_exp,
}
