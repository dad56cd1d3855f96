"""Variance, standard deviation, and their mean.

With c = x - mean(x), S = sum c^2, bounds X of x, n values, u of the accumulator, T = sum (|x| + X), M = max (|x| + X):

Operands.  S is the squared length of the projection of x; for |e| <= X it moves by
           2 sum c e + |projection of e|^2, at most  F = sum (2 |c| X + X^2).
Means.     Every mean, final or running, of a sum, of Welford's update m += (x - m) / k and of merged blocks, is off by
           at most D = u (T + 6 M):  k (m'_k - m_k) gains at most k u |m_k| + 3 u |x_k - m_{k-1}| at step k, where
           k |m_k| <= T and |x_k - m_{k-1}| <= 2 M.
Two passes.  sum (x - m')^2 = S + n (m' - m)^2, then n + 2 roundings per term: (n + 2) u (S + n D^2) + n D^2.
Welford.   The increments d_k d_k (k - 1) / k, d_k = x_k - m_{k-1}, add up to S. With means off by D each moves by
           2 D |d_k| + D^2, in all by 2 D sum |d_k| + n D^2 <= 2 D sqrt(2 n S) + n D^2, since sum_{k>1} d_k^2 <= 2 S.
Merging    blocks adds delta^2 n_a n_b / (n_a + n_b); by Cauchy-Schwarz all merges move S by at most
           4 D sqrt(S sum n_a n_b / (n_a + n_b)), and that sum is at most n one by one, n log2(n) / 4 pairwise.

All of them: F + 4 D sqrt(n L (S + F)) + n D^2 + (n + 8) u (S + F + n D^2) + n eta, L = max(1, log2(n) / 4), then the
division by n - correction. The difference of moments mean(x^2) - mean(x)^2 is not among them: it loses (mean / std)^2.

Source for the shape of the second term, n kappa u: Chan, Golub, LeVeque, The American Statistician 37 (1983).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import normal_dims, reduction_cone
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.special_groups import classed
from kernels_core.rules.sums import mean_dims, sum_tiles


def variance(local: Local, a: Enclosure, dims: tuple[int, ...], correction: float, keepdim: bool) -> Enclosure:
    """Return the variance in the accumulator, before it is stored."""
    x, n = a.mid, math.prod(a.mid.shape[d] for d in dims)
    centred = x - _reduce(torch.mean, x, dims)
    total = _reduce(torch.sum, centred.square(), dims)
    error = _error(local, a, centred, total, dims, n)
    divisor = max(0.0, n - correction)
    mid = total / divisor
    bound = (error / divisor + mid.abs() * (2 * local.u_acc)).mul_((1 + 3 * local.u_acc) * INFLATE).add_(local.eta_acc)
    value = classed(Enclosure(mid, bound), a, dims, keepdim=True)
    if n - correction <= 0:  # 0 / 0, or x / 0: a class that no rounding changes, unless S may be zero
        value = Enclosure(mid, torch.where((bound > 0) & bound.isfinite(), torch.inf, 0.0))
    if keepdim or not dims:
        return value
    return Enclosure(value.mid.squeeze(dims), value.bound_or_zero().squeeze(dims))


def _reduce(function: Any, value: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return function(value, dims, keepdim=True) if dims else value.clone()


def _error(
    local: Local, a: Enclosure, centred: torch.Tensor, total: torch.Tensor, dims: tuple[int, ...], n: int
) -> torch.Tensor:
    """Return the bound on S (see the module)."""
    if not a.mid.numel():
        return torch.zeros_like(total)
    u, size = local.u_sum, a.magnitude_upper()
    moved = torch.zeros_like(total)
    if a.bound is not None:
        moved = _reduce(torch.sum, a.bound * (2 * centred.abs() + a.bound), dims)
    upper = total + moved
    mean_error = (_reduce(torch.sum, size, dims) + 6 * _reduce(torch.amax, size, dims)) * (u * (1 + 2 * n * u))
    merges = n * max(1.0, math.log2(max(n, 1)) / 4)
    squared = mean_error.square() * n
    error = moved + 4 * mean_error * (upper * merges).sqrt() + squared + (upper + squared) * ((n + 8) * u * (1 + n * u))
    return error.add_(n * local.eta_sum).mul_(INFLATE * (1 + n * 2.0**-51))


def root(local: Local, value: Enclosure) -> Enclosure:
    """Square root of a value >= 0: sqrt(v) - sqrt(v - V) = V / (sqrt(v) + sqrt(v - V)), convex in V up to V = v."""
    mid = value.mid.sqrt()
    if value.bound is None:
        return local.rounded(mid, None, local.ulp("sqrt"))
    v, bound = value.mid, value.bound
    low = bound / (mid + (v - bound).clamp(min=0.0).sqrt())
    beyond = (bound > v) | (v == 0)
    if bool((beyond & (bound > 0)).any()):
        local.lose_rad()
    moved = torch.where(beyond, torch.maximum(mid, (v + bound).sqrt() - mid) * INFLATE, low)
    moved = torch.where(bound == 0, 0.0, torch.where(moved.isnan(), torch.inf, moved))
    result = local.rounded(mid, moved, local.ulp("sqrt"))
    certain = (bound == 0) & ~mid.isfinite()
    return Enclosure(mid, torch.where(certain, 0.0, result.bound_or_zero()))


def var(
    local: Local, a: Enclosure, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Enclosure:
    """Variance with a correction of the divisor (1 by default)."""
    dims = normal_dims(dim, a.mid.dim())
    return local.stored(variance(local, a, dims, 1.0 if correction is None else float(correction), keepdim))


def var_prim(local: Local, a: Enclosure, dims: Any = None, correction: float = 1.0, **_: Any) -> Enclosure:
    """The form that decompositions emit."""
    return var(local, a, dims, correction=correction)


def std(
    local: Local, a: Enclosure, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Enclosure:
    """Standard deviation; the variance is not rounded to a 16-bit result on the way."""
    dims = normal_dims(dim, a.mid.dim())
    return root(local, variance(local, a, dims, 1.0 if correction is None else float(correction), keepdim))


def var_mean(
    local: Local, a: Enclosure, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Enclosure, Enclosure]:
    """Variance and mean; Welford's update makes NaN of an infinite mean, so nothing is known there.

    A mean that is NaN for certain (of no values, of NaN, of infinities of both signs) is so in every order.
    """
    mean = mean_dims(local, a, dim, keepdim)
    known = mean.mid.isfinite() | (mean.mid.isnan() & (mean.bound_or_zero() == 0))
    mean = Enclosure(torch.where(known, mean.mid, torch.nan), torch.where(known, mean.bound_or_zero(), torch.inf))
    return var(local, a, dim, correction=correction, keepdim=keepdim), mean


# The exact values -----------------------------------------------------------------------------------------------------


def _cone(call: Any) -> list[np.ndarray]:
    meta = call.step.operand_metas[0]
    return [reduction_cone(normal_dims(call.step.argument(1, "dim"), len(meta.shape)), meta, call.index)]


def _variance_exact(call: Any, values: Any) -> Any:
    n = values.shape[1]
    mean = call.numbers.divide(np.add.reduce(values, axis=1), n)
    if call.output == 1:
        return mean
    given = (
        call.step.argument(2, "correction")
        if call.step.name.startswith("prims")
        else call.step.kwargs.get("correction")
    )
    divisor = max(0.0, n - (1.0 if given is None else float(given)))
    return call.numbers.divide(np.add.reduce((values - mean[:, None]) ** 2, axis=1), call.numbers.of(divisor))


def _deviation_exact(call: Any, values: Any) -> Any:
    return call.numbers.sqrt(_variance_exact(call, values))


FAMILY = Family()
FAMILY.add(
    Rule("aten.var.correction", var, _cone, _variance_exact, sum_tiles, aligned="left", classed=True),
    Rule("prims.var.default", var_prim, _cone, _variance_exact, sum_tiles, aligned="left", classed=True),
    Rule("aten.std.correction", std, _cone, _deviation_exact, sum_tiles, aligned="left", classed=True),
    Rule("aten.var_mean.correction", var_mean, _cone, _variance_exact, sum_tiles, aligned="left", classed=True),
)
