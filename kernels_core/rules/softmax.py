"""Softmax, log-softmax and logsumexp: their shift-by-maximum, streaming and logsumexp forms in any order of summation.

Notation for one row of n values x_k with bounds A_k, m = max x, s = sum exp(x_k - m), lse = m + log s, p_k the softmax,
d_k = m - x_k; u of the accumulator, e the relative error of one exponential. All relative errors are added in the
exponent: a factor 1 + r with |r| <= e is exp(t) with |t| <= e (1 + e). Where a profile lets an exponential's argument
be off (triton), v = u + that error stands for the u of x_k - m.

Operands. Moving x by at most A multiplies p_j by at most exp(A_j + K) either way, K = log sum p_k exp(A_k): the row's
logsumexp moves up by at most K, and down by at most sum p_k A_k <= K (Jensen). With phi(a) = (exp(a) - 1) / a,
increasing, K <= phi(max A) sum p_k A_k. K is convex in A and 0 at 0, so these bounds are star-shaped.

Rounding, shared by all forms:
    x_k - m            u d_k in the exponent of term k. In a streaming pass the maximum grows in steps and the roundings
                       of x_k - m_1, m_1 - m_2, ... add up to the same u d_k, all differences having one sign.
    exponentials       e for the term, and e + u for each rescaling of the running sum: T = ceil(n / 16) of them
                       (a block has 16 columns or more; exp(0) = 1 needs no grant, so one block's maximum costs once).
    the sum            (n - 1) u (Jeannerod and Rump 2013, see sums.py).
Hence s errs in the exponent by  K' + (T + 1) e + T u + (n - 1) u  where K' takes the place of K with
A_k + u (d_k + A_k + max A) in the place of A_k; and sum p_k d_k <= log n, since log s + sum p_k d_k is the entropy.

The form exp(x_j - lse) rounds the logarithm (of at most log n), m + log s (|lse| <= |m| + log n) and the difference
(|x_j - lse| <= d_j + log n) instead of dividing. Where u |m| reaches 1 (rows filled with -1e30) this form means nothing
and is not granted.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import normal_dims, reduction_cone
from kernels_core.rules.movement import before
from kernels_core.rules.operands import as_tensor, integer_rounding, parts, plus
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.scans import line
from kernels_core.rules.special_groups import classed

BLOCK = 16  # columns of a streaming pass between two rescalings
_UNDERFLOW = 750.0  # exp(-750) is zero in float64: terms further below the maximum weigh nothing
_MORE_SUM = 1 + 2.0**-30  # float64 roundings of a sum over a row, for rows of up to 2^22
_MORE = 1 + 2.0**-10  # e (1 + e), second-order terms of u, float64 roundings of scalars


@dataclasses.dataclass
class _Row:
    """What the values of each row share (tensors keep the reduced dimensions with size 1).

    Attributes:
        n: number of values.
        top: the maximum.
        denominator: error of s in the exponent, the movement of the operands included.
        reach: how far the operands' bounds may move the maximum (None where they are exact).
        wide: True where some bound is so large that it may lift a weight that is zero in float64.
    """

    n: int
    top: torch.Tensor
    denominator: torch.Tensor | float
    reach: torch.Tensor | None
    wide: bool = False


def _reach(row: _Row) -> torch.Tensor:
    return torch.zeros(()) if row.reach is None else row.reach


def exp_error(local: Local) -> float:
    """Return e, the relative error of an exponential in the compute format, its rounding included."""
    return (2 * local.ulp("exp") + 1) * local.u_acc * _MORE


def argument_error(local: Local) -> float:
    """Return the relative error of x_k - m as an exponential reads it: u, and more where the profile says so."""
    return local.u_acc + local.argument_error


def _log_error(local: Local, n: int) -> float:
    """Return the absolute error of the logarithm of a sum in [1, n]."""
    return (2 * local.ulp("log") + 1) * local.u_acc * math.log(n) * _MORE + local.smallest_normal


def _phi(a: torch.Tensor) -> torch.Tensor:
    """Return (exp(a) - 1) / a, at least 1; `a` is at least 2^-60."""
    a = a.clamp(min=2.0**-60)
    return torch.expm1(a) / a * INFLATE


def _row(local: Local, a: Enclosure, p: torch.Tensor, dims: tuple[int, ...]) -> _Row:
    n = math.prod(a.mid.shape[d] for d in dims)
    u, v, blocks = local.u_acc, argument_error(local), -(-n // BLOCK)
    top = a.mid.amax(dims, keepdim=True)
    added = local.sum_error(n, top.numel())
    rounding = ((blocks + 1) * exp_error(local) + blocks * u + added + n * local.smallest_normal) * _MORE
    if a.bound is None:
        return _Row(n, top, rounding + v * math.log(n) * _MORE, None)
    widest = a.bound.amax(dims, keepdim=True)
    moved = (p * a.bound).nan_to_num_(nan=0.0, posinf=torch.inf).sum(dims, keepdim=True)
    moved = moved.mul_(1 + v).add_((widest + math.log(n)) * v).mul_(_phi(widest * (1 + 2 * v) + _UNDERFLOW * v))
    wide = not float(widest.amax()) <= 1
    if wide:
        slowly, reach = _moved_far(a, p, dims, top, widest, v)
        moved, widest = torch.where(widest > 1, slowly, moved), torch.where(widest > 1, reach, widest)
    return _Row(n, top, moved.mul_(_MORE_SUM).add_(rounding), widest, wide)


def _moved_far(
    a: Enclosure, p: torch.Tensor, dims: tuple[int, ...], top: torch.Tensor, widest: torch.Tensor, u: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return K' itself, and how far the maximum may move, where a bound above 1 sits on a weight far below the others.

    Such is a masking constant like -1e30, which the format cannot hold. K' = log(1 + sum p_k (exp(A'_k) - 1)), and a
    term with A_k > 1 is at most exp(A'_k - d_k), p_k being at most exp(-d_k).
    """
    bound, below = a.bound_or_zero(), (top - a.mid).clamp_(min=0.0)
    reach = torch.minimum(
        widest, ((a.mid + bound).amax(dims, keepdim=True) - top).clamp_(min=0.0) + top.abs() * 2.0**-51
    )
    own = bound * (1 + u) + reach * u
    near = p * torch.expm1(own + u * below.clamp(max=_UNDERFLOW))
    terms = torch.where(bound <= 1, near, torch.exp(own - below * (1 - u)))
    return torch.log1p(terms.sum(dims, keepdim=True)), reach


def softmax(local: Local, a: Enclosure, dim: int, half_to_float: bool = False) -> Enclosure:
    """exp(x_j) / sum exp(x_k): |p' - p| <= p (exp(E_j) - 1), E_j = A_j + u d_j + (what the row shares)."""
    mid = torch.softmax(a.mid, dim)
    if not mid.numel():
        return Enclosure(mid, torch.zeros_like(mid))
    dims = normal_dims(dim, mid.dim())
    row, u, v = _row(local, a, mid, dims), local.u_acc, argument_error(local)
    lse_form = _log_error(local, row.n) + (2 * u + v) * math.log(row.n) + exp_error(local)
    division = (2 * local.ulp("division") + 4) * u
    shared = (_top_rounding(row, u) + (row.denominator + lse_form + division)).mul_(_MORE)
    if a.bound is None:
        # (v d_j + shared) phi is at least exp(v d_j + shared) - 1 wherever p_j is not zero in float64
        bound = _with_distance(a.mid, row.top, shared, v).mul_(mid).mul_(_phi(shared + _UNDERFLOW * v).mul_(INFLATE))
    else:
        exponent = _with_distance(a.mid, row.top, shared, v)
        bound = exponent.add_(a.bound, alpha=1 + 2 * v).add_(_reach(row) * v).expm1_().mul_(mid).mul_(INFLATE)
    least = local.smallest_normal + local.eta_acc
    if not row.wide and all_finite(bound) and (a.bound is None or float(bound.amax()) <= 1.0):
        return local.stored(Enclosure(mid, bound.add_(least)))  # infinite and NaN x would have made it NaN
    return local.stored(_with_special_values(local, a, mid, bound, row, shared, dims, least))


def _with_special_values(
    local: Local,
    a: Enclosure,
    mid: torch.Tensor,
    bound: torch.Tensor,
    row: _Row,
    shared: torch.Tensor,
    dims: tuple[int, ...],
    least: float,
) -> Enclosure:
    """Return softmax where some value is infinite or NaN, or may be more than twice itself."""
    bound = _masked(a, mid, bound, shared, row.top)
    if a.bound is not None and float(bound.amax()) > 1.0:
        local.lose_rad()
        largest = shared.clamp(max=700.0).exp() * INFLATE
        bound = torch.minimum(bound, torch.where(_reach(row).isfinite(), largest, torch.inf))
    return classed(Enclosure(mid, _exact_zeros(a, bound.add_(least))), a, dims, keepdim=True)


def _with_distance(x: torch.Tensor, top: torch.Tensor, shared: torch.Tensor, u: float) -> torch.Tensor:
    """Return u d_j + shared.

    One pass, shared + u top - u x, where every `shared` has the part u |top|: its float64 cancellation is far
    below that. Rows with u |top| >= 1 lack that part, there the distance is formed first.
    """
    if float((top.abs() * u).amax()) < 1:
        return torch.sub(shared + top * u, x, alpha=u)
    return (top - x).mul_(u).add_(shared)


def _top_rounding(row: _Row, u: float) -> torch.Tensor:
    """Return u |m|, the rounding of lse; 0 where the form exp(x - lse) means nothing."""
    rounding = row.top.abs() * u
    return torch.where(rounding < 1, rounding, torch.where(rounding.isfinite(), 0.0, rounding))


def _masked(
    a: Enclosure, mid: torch.Tensor, bound: torch.Tensor, shared: torch.Tensor, top: torch.Tensor
) -> torch.Tensor:
    """Bound the weights that are zero in float64 by themselves: at most exp(-d_j (1 - u) + A_j (1 + 2 u) + shared)."""
    exponent = (a.mid - top).mul_(0.5).add_(shared)
    largest = (exponent if a.bound is None else exponent.add_(a.bound, alpha=2.0)).exp_().mul_(INFLATE)
    return torch.where(mid == 0, largest, torch.where(bound.isnan(), torch.inf, bound))


def _exact_zeros(a: Enclosure, bound: torch.Tensor) -> torch.Tensor:
    """Masked columns have weight 0 and nothing else."""
    if all_finite(a.mid):
        return bound
    exact = (a.mid == -torch.inf) & bound.isfinite()
    if a.bound is not None:
        exact &= a.bound == 0
    return bound.masked_fill_(exact, 0.0)


def log_softmax(local: Local, a: Enclosure, dim: int, half_to_float: bool = False) -> Enclosure:
    """x_j - lse: |y' - y| <= A_j + (error of log s) + 2 u |y_j| + u (|m| + 2 log n); d_j <= |y_j|."""
    mid = torch.log_softmax(a.mid, dim)
    if not mid.numel():
        return Enclosure(mid, torch.zeros_like(mid))
    dims = normal_dims(dim, mid.dim())
    row, u = _row(local, a, mid if a.bound is None else mid.exp(), dims), local.u_acc
    bound = mid.abs().mul_(2 * u * _MORE).add_(_logarithm(local, row, _top_rounding(row, u)))
    if a.bound is not None:
        bound.add_(a.bound, alpha=1 + 2 * u).add_(_reach(row) * u)
    bound = bound.mul_(INFLATE).add_(local.smallest_normal)
    if not all_finite(bound):
        exact = mid == -torch.inf if a.bound is None else (mid == -torch.inf) & (a.bound == 0) & _reach(row).isfinite()
        bound.masked_fill_(exact, 0.0)
    return local.stored(classed(Enclosure(mid, bound), a, dims, keepdim=True))


def _logarithm(local: Local, row: _Row, top_rounding: torch.Tensor) -> torch.Tensor:
    """Return the error of m + log s that the row shares, given that of adding m."""
    log_n = math.log(row.n)
    return (top_rounding + 2 * log_n * local.u_acc).mul_(_MORE).add_(row.denominator + _log_error(local, row.n))


def logsumexp(local: Local, a: Enclosure, dim: Any, keepdim: bool = False) -> Enclosure:
    """M + log s."""
    if not a.floating:
        read, unsure = parts(a)
        a = Enclosure(read, as_tensor(plus(unsure, integer_rounding(local, a.mid)), read))
    dims = normal_dims(dim, a.mid.dim())
    mid = torch.logsumexp(a.mid, dims, keepdim=True) if a.mid.dim() else a.mid.clone()
    n = math.prod(a.mid.shape[d] for d in dims)
    if not mid.numel() or not n:
        value = Enclosure(mid, torch.zeros_like(mid))
    else:
        row = _row(local, a, a.mid if a.bound is None else (a.mid - mid).exp_(), dims)
        bound = (
            _logarithm(local, row, row.top.abs() * local.u_acc)
            .add_(mid.abs(), alpha=2 * local.u_acc)
            .mul_(INFLATE)
            .add_(local.smallest_normal)
        )
        value = local.stored(classed(Enclosure(mid, bound), a, dims, keepdim=True))
    if keepdim or not a.mid.dim():
        return value
    return Enclosure(value.mid.squeeze(dims), value.bound_or_zero().squeeze(dims))


# The exact values -----------------------------------------------------------------------------------------------------


def _line_cone(call: Any) -> list[np.ndarray]:
    return [line(call.step.operand_metas[0], int(call.step.args[1]), call.index)[0]]


def _softmax_exact(call: Any, values: Any) -> Any:
    _, place = line(call.step.operand_metas[0], int(call.step.args[1]), call.index)
    powers = call.numbers.ball(lambda v: v.exp(), values)
    return call.numbers.divide(powers[np.arange(len(place)), place], np.add.reduce(powers, axis=1))


def _lse(call: Any, values: Any) -> Any:
    powers = call.numbers.ball(lambda v: v.exp(), values)
    return call.numbers.ball(lambda v: v.log(), np.add.reduce(powers, axis=1))


def _log_softmax_exact(call: Any, values: Any) -> Any:
    _, place = line(call.step.operand_metas[0], int(call.step.args[1]), call.index)
    return values[np.arange(len(place)), place] - _lse(call, values)


def _lse_cone(call: Any) -> list[np.ndarray]:
    meta = call.step.operand_metas[0]
    return [reduction_cone(normal_dims(call.step.argument(1, "dim"), len(meta.shape)), meta, call.index)]


def _lse_tiles(step: Any) -> int:
    rank = len(step.operand_metas[0].shape)
    return min(normal_dims(step.argument(1, "dim"), rank), default=0)


FAMILY = Family()
FAMILY.add(
    Rule("aten._softmax.default", softmax, _line_cone, _softmax_exact, before(1), aligned="left", classed=True),
    Rule(
        "aten._log_softmax.default",
        log_softmax,
        _line_cone,
        _log_softmax_exact,
        before(1),
        aligned="left",
        classed=True,
    ),
    Rule("aten.logsumexp.default", logsumexp, _lse_cone, _lse, _lse_tiles, aligned="left", classed=True),
)
