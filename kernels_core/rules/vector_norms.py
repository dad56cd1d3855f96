"""Vector norms over dimensions.

Operands.  A norm with p >= 1 is 1-Lipschitz in itself: | ||x'|| - ||x|| | <= ||X||, with X the bounds.
           For p < 1 it is N(|x|), N increasing in every argument and concave (Minkowski's inequality reversed; Hardy,
           Littlewood, Polya, Inequalities, theorem 25), so with X < |x| where X is not zero
           N(|x| + X) - N(|x|) <= grad N(|x|) X <= N(|x|) - N(|x| - X), and the last is convex in the size of X.
Rounding.  Each |x|^p errs by e_p relatively (one rounding for p = 2), the sum by (n - 1) u, and the root divides the
           relative error by p; scaling by a power of the largest value adds two roundings. In all
           ((n + 4) u + e_p) / p + e_root of ||x|| + ||X||.
Underflow. Each power may lose eta (an elementary power: the smallest normal), the sum n eta, and a root moves by at
           most the root of that, or n eta / (p ||x||^(p-1)).

p = inf and -inf are the largest and smallest |x|, p = 0 counts the values that are not zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import DISCRETE, INFLATE, Local
from kernels_core.rules.cones import normal_dims, reduction_cone
from kernels_core.rules.extrema import extremum
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.special_groups import classed
from kernels_core.rules.sums import summed


def vector_norm(
    local: Local, a: Enclosure, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Enclosure:
    """(sum |x|^p)^(1/p)."""
    p, dims = float(ord), normal_dims(dim, a.mid.dim())
    magnitude = Enclosure(a.mid.abs(), a.bound)
    if math.isinf(p):
        function = torch.amax if p > 0 else torch.amin
        mid = function(magnitude.mid, dims, keepdim=keepdim) if dims else magnitude.mid
        return extremum(magnitude, mid, dims, keepdim, 1 if p > 0 else -1)
    if p == 0:
        return local.stored(summed(local, _nonzero(a), dims, keepdim))
    if p == 1:
        return local.stored(summed(local, magnitude, dims, keepdim))
    return local.stored(_power_norm(local, a, p, dims, keepdim))


def _nonzero(a: Enclosure) -> Enclosure:
    mid = (a.mid != 0).to(torch.float64)
    return Enclosure(
        mid, None if a.bound is None else ((a.bound > 0) & ~(a.mid.abs() > a.bound * DISCRETE)).to(torch.float64)
    )


def _power_norm(local: Local, a: Enclosure, p: float, dims: tuple[int, ...], keepdim: bool) -> Enclosure:
    n, u = math.prod(a.mid.shape[d] for d in dims), local.u_sum
    mid = torch.linalg.vector_norm(a.mid, p, dims or None, keepdim)
    moved = torch.zeros_like(mid)
    if a.bound is not None:
        moved = (
            torch.linalg.vector_norm(a.bound.expand(a.shape), p, dims or None, keepdim)
            if p >= 1
            else _quasi(a, p, mid, dims, keepdim)
        )
    power = 0.0 if p == 2 else 2 * local.ulp("pow") * local.u_acc
    final = 2 * local.ulp("sqrt" if p == 2 else "pow") * local.u_acc + u
    relative = (((n + 4) * u + power) / abs(p) + final) * (1 + 2.0**-10 + n * u)
    upper = mid + moved
    flushed = n * (local.eta_sum if p == 2 else local.smallest_normal)
    lost = torch.full_like(mid, flushed ** (1 / p)) if p > 1 else torch.full_like(mid, flushed * 2)
    if p > 1:
        lost = torch.minimum(lost, flushed / (p * mid ** (p - 1)).clamp(min=1e-300))
    bound = (moved + upper * relative).mul_(INFLATE * (1 + n * 2.0**-51)).add_(lost * (1 + 2.0**-20))
    bound.add_(local.eta_sum if p == 2 else local.smallest_normal)
    zero = (mid == 0) & (moved == 0)
    if local.dtype is torch.float64 and bool(zero.any()):  # our own powers may underflow; of exact zeros none does
        zero &= (a.mid != 0).to(mid).sum(dims or None, keepdim=keepdim) == 0
    bound.masked_fill_(zero, 0.0)
    return classed(Enclosure(mid, bound), a, dims, keepdim)


def _quasi(a: Enclosure, p: float, mid: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    """Return how far bounds X move a norm with p < 1: N(|x|) - N(|x| - X) (see the module), inf where X reaches zero.

    Both norms are of float64: n + 1 roundings and a power each, divided by p, and a power again.
    """
    size, reach = a.mid.abs(), a.bound_or_zero().expand(a.shape)
    low = torch.linalg.vector_norm((size - reach).clamp(min=0.0), p, dims or None, keepdim)
    n = math.prod(a.mid.shape[d] for d in dims)
    moved = mid - low + mid * ((n + 8) * 2.0**-52 / min(1.0, abs(p)) + 2.0**-50)
    unknown = ((reach > 0) & ~(reach < size)).to(mid).sum(dims or None, keepdim=keepdim) > 0
    exact = (reach > 0).to(mid).sum(dims or None, keepdim=keepdim) == 0
    moved = torch.where(unknown | moved.isnan(), torch.inf, moved)
    return torch.where(exact, 0.0, moved)


def _norm_scalar(local: Local, a: Enclosure, p: float | None = 2, *_: Any, **__: Any) -> Enclosure:
    return vector_norm(local, a, 2 if p is None else p)


def _norm_dims(
    local: Local, a: Enclosure, p: float | None, dim: Any, keepdim: bool = False, *, dtype: Any = None
) -> Enclosure:
    return vector_norm(local, a, 2 if p is None else p, dim, keepdim)


# The exact values -----------------------------------------------------------------------------------------------------


def _cone(call: Any) -> list[np.ndarray]:
    meta = call.step.operand_metas[0]
    return [reduction_cone(normal_dims(call.step.argument(2, "dim"), len(meta.shape)), meta, call.index)]


def _exact(call: Any, values: Any) -> Any:
    n = call.numbers
    given = call.step.argument(1, "p" if ".norm." in call.step.name else "ord", 2)
    p = 2.0 if given is None else float(given)
    sizes = n.each(abs, values)
    if math.isinf(p):
        found = sizes[:, 0]
        for k in range(1, sizes.shape[1]):
            found = n.each(n.maximum if p > 0 else n.minimum, found, sizes[:, k])
        return found
    if p == 0:
        return np.add.reduce(n.each(lambda v: n.real(int(not n.equal(v, n.real(0)))), sizes), axis=1)
    if p == 1:
        return np.add.reduce(sizes, axis=1)
    if p == 2:
        return n.sqrt(np.add.reduce(values * values, axis=1))
    powers = n.ball(lambda v: v ** n.of(p) if v > 0 or p < 0 else v * 0, sizes)
    return n.ball(lambda v: v ** (1 / n.of(p)) if v > 0 else v * 0, np.add.reduce(powers, axis=1))


def _tiles(step: Any) -> int:
    rank = len(step.operand_metas[0].shape)
    return min(normal_dims(step.argument(2, "dim"), rank), default=0)


FAMILY = Family()
FAMILY.add(
    Rule("aten.linalg_vector_norm.default", vector_norm, _cone, _exact, _tiles, aligned="left", classed=True),
    Rule("aten.norm.Scalar", _norm_scalar, _cone, _exact, classed=True),
    Rule("aten.norm.ScalarOpt_dim", _norm_dims, _cone, _exact, _tiles, aligned="left", classed=True),
)
