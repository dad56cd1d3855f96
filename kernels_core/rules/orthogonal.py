"""QR factors, with the signs of Householder's reflections as LAPACK forms them.

Perturbation of R and Q (factorizations.py for S): with |F| <= E,

    R' = (I + S) R,   Q' - Q = (F R^-1 - Q S)(I + S)^-1.

What is granted: k Householder reflections. One of length l errs by at most (6 l + 20) u of the norm of what it is
applied to (the vector by l + 8 roundings, the inner product by l, three more, twice the norm of the reflection;
Higham, Accuracy and Stability of Numerical Algorithms, lemmas 19.1 and 19.2 with the constants counted), so column j of
A is perturbed by at most u sum_{i <= j} (6 (m - i) + 20) of its norm (theorem 19.4), and Q as it is formed by as much.

The sign of a row of R is that opposite to the element which the reflection starts from, alpha = R_jj (1 - tau_j), and
that of alpha itself where nothing stands below it, for then LAPACK reflects nothing (tau = 0). Where a perturbation may
turn alpha, or make the rest of its column zero, of norm |R_jj| tau |v| for a reflection by (1, v), the factors are
unknown; 16 m w |A|_F (w as in factorizations.py, which bounds |F R^-1|) stands above what the perturbation of the
earlier reflections makes of either. A triangle with no bound below its diagonal meets no reflection. The columns of a
complete Q beyond those of A are determined by the algorithm alone: they are left unknown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotSeparatedError
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.factorizations import bounded_product, factor_box
from kernels_core.rules.inverses import GROWN, inverse_upper, largest, resolvent, settled, transposed
from kernels_core.rules.matrices import exact_matrix, matrix_rule, parts_of
from kernels_core.rules.record import Family

Tensor = torch.Tensor
Objects = Any


def _granted(rows: int, columns: int, short: int, u: float, like: Tensor) -> Tensor:
    """Return the relative error of each column (1, columns) by the reflections that act on it."""
    each = [0.0]
    for k in range(short):
        each.append(each[-1] + (6 * (rows - k) + 20) * u)
    return like.new_tensor([each[min(j + 1, short)] for j in range(columns)]).unsqueeze(0) * GROWN


def qr(local: Local, a: Enclosure, mode: str = "reduced") -> Any:
    """Return Q and R."""
    mid, bound = parts_of(a)
    rows, columns = mid.shape[-2:]
    short = min(rows, columns)
    q, r = torch.linalg.qr(mid.nan_to_num(torch.nan, torch.nan, torch.nan), mode="reduced")
    granted = _granted(rows, columns, short, local.u_acc, mid)
    error = bound + mid.square().sum(-2, keepdim=True).sqrt() * granted
    first, square = error[..., :short], r[..., :short]
    inverse = inverse_upper(square)
    moved = bounded_product(first, inverse)  # |F R^-1|
    turned = bounded_product(transposed(q.abs()), moved)
    w = turned + transposed(turned) + bounded_product(transposed(moved), moved)
    box = torch.triu(factor_box(w, short))
    diagonal = torch.eye(short, dtype=torch.bool, device=mid.device)
    box = torch.where(diagonal, (box + 4 * short * largest(w) ** 2) / 2, box)
    rest = moved + bounded_product(q.abs(), box)
    formed = granted[..., :short][..., -1:]
    q_error = transposed(resolvent(transposed(box).nan_to_num(torch.inf), transposed(rest))) + formed + local.eta
    r_error = bounded_product(box, square.abs()) + local.eta
    if columns > short:
        right = bounded_product(transposed(q_error), mid[..., short:].abs())
        right = right + bounded_product(transposed(q.abs() + q_error), error[..., short:])
        r_error = torch.cat((r_error, right), -1)
    flat = ((mid != 0) | (bound != 0)).tril(-1).any(-2, keepdim=True).any(-1, keepdim=True).logical_not()
    known = _signs_known(mid, r, largest(w) * 16 * rows) | flat
    q_error, r_error = (torch.where(known, e, torch.inf) for e in (q_error, r_error))
    r_error = torch.where(torch.ones_like(r, dtype=torch.bool).triu(), r_error, 0.0)
    return _shaped(local, settled(q, q_error), settled(r, r_error), mode)


def _signs_known(mid: Tensor, r: Tensor, reach: Tensor) -> Tensor:
    rows, short = mid.shape[-2], r.shape[-2]
    vectors, tau = torch.geqrf(mid)
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    rest = torch.tril(vectors, -1)[..., :short].square().sum(-2).sqrt() * tau
    least = diagonal.abs() * torch.minimum((1 - tau).abs(), rest)
    least = least[..., : rows - 1 if short == rows else short]
    size = mid.square().sum((-2, -1), keepdim=True).sqrt()
    return (least.unsqueeze(-1) > reach * size).all(-2, keepdim=True)


def _shaped(local: Local, q: Enclosure, r: Enclosure, mode: str) -> tuple[Enclosure, Enclosure]:
    """Return the factors in the shapes of the mode: nothing is known of what is added to Q, zeros are added to R."""
    shapes = [meta.shape for meta in local.step.metas if meta is not None]
    found: list[Enclosure] = []
    for value, shape, unknown in zip((q, r), shapes, (torch.inf, 0.0), strict=True):
        if mode == "r" and not found:
            found.append(Enclosure(torch.zeros(shape, dtype=torch.float64)))
            continue
        mid = torch.zeros(shape, dtype=torch.float64)
        bound = torch.full(shape, unknown, dtype=torch.float64)
        corner = (..., slice(value.shape[-2]), slice(value.shape[-1]))
        mid[corner], bound[corner] = value.mid, value.bound_or_zero()
        found.append(Enclosure(mid, bound))
    return found[0], found[1]


def _exact_qr(call: Any, a: Objects) -> tuple[Objects, Objects]:
    """Return Q and R by Gram and Schmidt, which are Householder's but for the signs; these by his algorithm."""
    n, (rows, columns) = call.numbers, a.shape
    zero = n.real(0)
    work, q = a.copy(), np.full(call.step.metas[0].shape[-2:], zero, dtype=object)
    r = np.full(call.step.metas[1].shape[-2:], zero, dtype=object)
    basis = np.array([[n.real(int(i == j)) for j in range(rows)] for i in range(rows)], dtype=object)
    for j in range(min(rows - 1, columns)):
        if n.sign(sum((v * v for v in work[j + 1 :, j]), zero)) == 0:
            continue
        norm = np.asarray(n.sqrt(sum((v * v for v in work[j:, j]), zero))).item()
        sign = n.sign(work[j, j])
        if sign == 0:
            raise NotSeparatedError
        v = work[j:, j].copy()
        v[0] = v[0] + norm * sign
        scale = n.divide(n.real(2), sum((x * x for x in v), zero))
        work[j:, j:] = work[j:, j:] - np.outer(v, scale * v.dot(work[j:, j:]))
        basis[:, j:] = basis[:, j:] - np.outer(basis[:, j:].dot(v), v * scale)
    for i, j in np.ndindex(r.shape):
        r[i, j] = work[i, j] if j >= i else zero
    q[...] = basis[:, : q.shape[1]] if q.size else q
    return q, r


FAMILY = Family()
FAMILY.add(matrix_rule("aten.linalg_qr.default", qr, exact_matrix(_exact_qr)))
