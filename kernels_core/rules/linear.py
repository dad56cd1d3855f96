"""Matrix products, with or without a summand: beta s + alpha (a @ b); their bound is that of product_bounds.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import broadcast_index
from kernels_core.rules.integers import whole_integers
from kernels_core.rules.matmul_inputs import as_read
from kernels_core.rules.product_bounds import Addend, product_bound, relative_error
from kernels_core.rules.record import Family, Rule
from kernels_core.rules.special_products import classed_product

Number = int | float


def product(local: Local, a: Enclosure, b: Enclosure, more: float = 0.0) -> Enclosure:
    """Return the enclosure of a @ b in the accumulator, before it is stored; `more` roundings on each term's path."""
    multiply = torch.mm if a.mid.dim() == 2 else torch.bmm
    mid, a, b = multiply(a.mid, b.mid), as_read(local, a), as_read(local, b)
    bound = product_bound(local, multiply, a, b, a.mid.shape[-1], more, mid)
    value = Enclosure(mid, bound)
    return value if all_finite(bound) else classed_product(a, b, value)


def affine(
    local: Local, summand: Enclosure | None, a: Enclosure, b: Enclosure, beta: Number, alpha: Number, more: float = 0.0
) -> Enclosure:
    """Return beta summand + alpha (a @ b) in the accumulator; a summand with beta = 0 is not read (as in PyTorch)."""
    more += local.sum_rounding * (alpha != 1)
    if summand is None or beta == 0 or alpha == 0:
        value = _scaled(local, product(local, a, b, more), alpha)
        return value if summand is None or beta == 0 else _with_summand_alone(local, summand, beta, value)
    multiply = torch.mm if a.mid.dim() == 2 else torch.bmm
    mid, a, b = multiply(a.mid, b.mid), as_read(local, a), as_read(local, b)
    scale = abs(beta) / abs(alpha)
    addend = Addend(summand.mid * (beta / alpha), None if summand.bound is None else summand.bound * scale,
                    local.sum_rounding * ((beta != 1) + (alpha != 1)))  # fmt: skip
    bound = product_bound(local, multiply, a, b, a.mid.shape[-1], more, mid, addend) * (abs(alpha) * INFLATE)
    bound = bound.add_(2 * local.eta_sum)
    total = summand.mid * beta + mid * alpha
    if all_finite(bound) and all_finite(total):
        return Enclosure(total, bound)
    own = product_bound(local, multiply, a, b, a.mid.shape[-1], more, mid)
    value = _scaled(local, classed_product(a, b, Enclosure(mid, own)), alpha)
    return _classed_sum(summand, beta, value, summand.mid * beta + value.mid, bound)


def _with_summand_alone(local: Local, summand: Enclosure, beta: Number, value: Enclosure) -> Enclosure:
    """Add beta summand to a product that alpha = 0 has made zero."""
    slope = relative_error(2, local.u_sum, float(beta != 1))  # loaded, multiplied and added
    own = summand.mid.abs() * (abs(beta) * slope) + summand.bound_or_zero() * (abs(beta) * (1 + slope))
    mid = summand.mid * beta + value.mid
    bound = (own + value.bound_or_zero() + 2 * local.eta_sum) * INFLATE
    finite = all_finite(bound) and all_finite(mid)
    return Enclosure(mid, bound) if finite else _classed_sum(summand, beta, value, mid, bound)


def _scaled(local: Local, value: Enclosure, alpha: Number) -> Enclosure:
    if alpha == 1:
        return value
    bound = value.bound_or_zero() * (abs(alpha) * INFLATE) + local.eta_sum
    bound = torch.where(value.mid.isfinite(), bound, value.bound_or_zero())
    return Enclosure(value.mid * alpha, bound)


def _classed_sum(
    summand: Enclosure, beta: Number, value: Enclosure, mid: torch.Tensor, bound: torch.Tensor
) -> Enclosure:
    """An infinity or NaN is certain where one term is certainly so and the other bounded, or certainly so too."""
    scaled = summand.mid * beta
    own = summand.bound_or_zero()
    sure = [(~x.isfinite() & (e == 0)) for x, e in ((scaled, own), (value.mid, value.bound_or_zero()))]
    bounded = [x.isfinite() & e.isfinite() for x, e in ((scaled, own), (value.mid, value.bound_or_zero()))]
    certain = (sure[0] & (bounded[1] | sure[1])) | (sure[1] & bounded[0])
    certain = certain | (sure[0] & scaled.isnan()) | (sure[1] & value.mid.isnan())
    bound = torch.where(certain, 0.0, torch.where(mid.isfinite() & ~bound.isnan(), bound, torch.inf))
    return Enclosure(torch.where(certain | mid.isfinite(), mid, torch.nan), bound)


Shape = Callable[[Enclosure, Enclosure], tuple[Enclosure, Enclosure]]


def _reshaped(value: Enclosure, change: Callable[[torch.Tensor], torch.Tensor]) -> Enclosure:
    bound = None if value.bound is None else change(value.bound.expand(value.shape))
    return Enclosure(change(value.mid), bound)


def _as_given(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return a, b


def _matrix_vector(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return a, _reshaped(b, lambda t: t.unsqueeze(-1))


def _vectors(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return _reshaped(a, lambda t: t.unsqueeze(0)), _reshaped(b, lambda t: t.unsqueeze(-1))


def _outer(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return _reshaped(a, lambda t: t.unsqueeze(-1)), _reshaped(b, lambda t: t.unsqueeze(0))


def _joined_batches(a: Enclosure, b: Enclosure) -> tuple[Enclosure, Enclosure]:
    return _reshaped(a, lambda t: t.transpose(0, 1).flatten(1)), _reshaped(b, lambda t: t.flatten(0, 1))


def _plain(shape: Shape) -> Any:
    def bound(local: Local, a: Enclosure, b: Enclosure) -> Enclosure:
        if not a.floating:
            return whole_integers(local, a, b)
        return _shaped(local, affine(local, None, *shape(a, b), 0, 1))

    return bound


def _with_summand(shape: Shape) -> Any:
    def bound(
        local: Local, summand: Enclosure, a: Enclosure, b: Enclosure, *, beta: Number = 1, alpha: Number = 1
    ) -> Enclosure:
        if not a.floating:
            return whole_integers(local, summand, a, b, beta=beta, alpha=alpha)
        if shape is _matrix_vector and summand.mid.dim():
            summand = _reshaped(summand, lambda t: t.unsqueeze(-1))
        return _shaped(local, affine(local, summand, *shape(a, b), beta, alpha, _narrow_roundings(local, shape, a)))

    return bound


def _narrow_roundings(local: Local, shape: Shape, a: Enclosure) -> float:
    """Return how often PyTorch rounds to a 16-bit result on the way, in units of u_acc.

    addbmm adds batch after batch to its result; addr multiplies alpha, the vectors and beta in 16-bit steps.
    """
    if local.dtype is local.compute or shape not in (_joined_batches, _outer):
        return 0.0
    return (a.shape[0] if shape is _joined_batches else 2) * local.u / local.u_acc


def _shaped(local: Local, value: Enclosure) -> Enclosure:
    return local.stored(_reshaped(value, lambda t: t.reshape(local.step.shape)))


def _matrix_cone(call: Any) -> list[np.ndarray]:
    """Row of the first, column of the second: (n, K) each; a vector is a matrix of one row or column."""
    first, second = call.step.operand_metas[-2:]
    *_, rows, inner = first.shape
    columns = second.shape[-1] if len(second.shape) > 1 else 1
    index, column = np.divmod(call.index, columns)
    batch, row = np.divmod(index, rows)
    k = np.arange(inner)
    a = (batch * rows + row)[:, None] * inner + k
    b = (batch[:, None] * inner + k) * columns + column[:, None]
    return [*_summand_cone(call), a, b]


def _dot_cone(call: Any) -> list[np.ndarray]:
    k = np.broadcast_to(
        np.arange(call.step.operand_metas[0].numel), (len(call.index), call.step.operand_metas[0].numel)
    )
    return [k, k]


def _outer_cone(call: Any) -> list[np.ndarray]:
    row, column = np.divmod(call.index, call.step.operand_metas[-1].numel)
    return [*_summand_cone(call), row[:, None], column[:, None]]


def _joined_cone(call: Any) -> list[np.ndarray]:
    batches, rows, inner = call.step.operand_metas[-2].shape
    columns = call.step.operand_metas[-1].shape[-1]
    row, column = np.divmod(call.index, columns)
    batch, k = (part.reshape(-1) for part in np.indices((batches, inner)))
    a = (batch * rows + row[:, None]) * inner + k
    b = (batch * inner + k) * columns + column[:, None]
    return [*_summand_cone(call), a, b]


def _summand_cone(call: Any) -> list[np.ndarray]:
    if len(call.step.operand_metas) == 2:
        return []
    if call.step.kwargs.get("beta", 1) == 0:
        return [np.full(len(call.index), -1, dtype=np.int64)]
    return [broadcast_index(call.step.operand_metas[0], call.meta, call.index)]


def inner_products(call: Any, a: Any, b: Any) -> Any:
    """Return the exact inner products along the second axis."""
    zero = call.numbers.real(0) if call.meta.dtype.is_floating_point else 0
    return np.add.reduce(a * b, axis=1, initial=zero) if a.shape[1] else np.full(a.shape[0], zero, dtype=object)


def _affine_exact(call: Any, summand: Any, a: Any, b: Any) -> Any:
    beta, alpha = (call.numbers.of(call.step.kwargs.get(name, 1)) for name in ("beta", "alpha"))
    value = inner_products(call, a, b) * alpha
    return value if call.step.kwargs.get("beta", 1) == 0 else value + summand * beta


FAMILY = Family()
FAMILY.add(
    Rule("aten.mm.default", _plain(_as_given), _matrix_cone, inner_products, classed=True),
    Rule("aten.bmm.default", _plain(_as_given), _matrix_cone, inner_products, classed=True),
    Rule("aten.mv.default", _plain(_matrix_vector), _matrix_cone, inner_products, classed=True),
    Rule("aten.dot.default", _plain(_vectors), _dot_cone, inner_products, classed=True),
    Rule("aten.vdot.default", _plain(_vectors), _dot_cone, inner_products, classed=True),
    Rule("aten.ger.default", _plain(_outer), _outer_cone, inner_products, classed=True),
    Rule("aten.addmm.default", _with_summand(_as_given), _matrix_cone, _affine_exact, classed=True),
    Rule("aten.baddbmm.default", _with_summand(_as_given), _matrix_cone, _affine_exact, classed=True),
    Rule("aten.addmv.default", _with_summand(_matrix_vector), _matrix_cone, _affine_exact, classed=True),
    Rule("aten.addr.default", _with_summand(_outer), _outer_cone, _affine_exact, classed=True),
    Rule("aten.addbmm.default", _with_summand(_joined_batches), _joined_cone, _affine_exact, classed=True),
)
