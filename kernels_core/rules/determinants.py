"""Determinants, their sign and logarithm, from the factors of an elimination.

With |F| <= E and G = |A^-1| E (inverses.py), each term of det(I + A^-1 F) - 1 is one of prod_i (1 + sum_j G_ij) - 1:

    |det(A + F) - det(A)| <= |det(A)| (prod_i (1 + sum_j G_ij) - 1).

Near a singular matrix, by the same expansion of det(A + F) over rows with the row sums r of |A| and e of E,
|det(A + F) - det(A)| <= prod_i (r_i + e_i) - prod_i r_i. The smaller of the two counts. The product of the n pivots
rounds n times; their logarithms are summed.
Source: the expansion is Leibniz's formula; Higham, Accuracy and Stability of Numerical Algorithms, section 14.6, for
the determinant as the product of the pivots of a perturbed matrix.
"""

from __future__ import annotations

from typing import Any

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotRationalError
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.inverses import GROWN, elimination_error, inverse_upper, settled
from kernels_core.rules.matrices import determinant_of, exact_matrix, matrix_rule, parts_of, unsaid
from kernels_core.rules.record import Family

Tensor = torch.Tensor


def _relative(a: Tensor, error: Tensor) -> Tensor:
    """Return an upper bound on |det(A + F) / det(A) - 1|, inf where there is none."""
    sums = (inverse_upper(a) @ error).sum(-1) * GROWN
    found = torch.expm1(torch.log1p(sums).sum(-1)) * GROWN * INFLATE
    return torch.where(found.isnan(), torch.inf, found)


def _absolute(a: Tensor, error: Tensor) -> Tensor:
    """Return the second bound of the module, as a sum of non-negative products."""
    rows, more = a.abs().sum(-1) * GROWN, error.sum(-1) * GROWN
    kept, total = a.new_ones(a.shape[:-2]), a.new_zeros(a.shape[:-2])
    for k in range(a.shape[-1]):
        total = total * (rows[..., k] + more[..., k]) + kept * more[..., k]
        kept = kept * rows[..., k]
    return total * GROWN


def det(local: Local, a: Enclosure) -> Any:
    """Return the determinant; of the factors nothing is said."""
    mid, bound = parts_of(a)
    n = mid.shape[-1]
    value = torch.linalg.det(mid)
    error = bound + elimination_error(mid, n, local.u_acc)
    relative = value.abs() * _relative(mid, error)
    relative = torch.where(relative.isnan(), torch.inf, relative)  # a singular matrix: 0 inf
    moved = torch.minimum(relative, _absolute(mid, error).expand(value.shape))
    rounding = n * local.u_acc * (1 + n * local.u_acc)
    result = settled(value, moved * (1 + rounding) + value.abs() * rounding + n * local.eta)
    return result, *unsaid(local, 1, result)


def slogdet(local: Local, a: Enclosure) -> Any:
    """Return the sign and the logarithm of |det|; a determinant that may be zero leaves both open."""
    mid, bound = parts_of(a)
    n = mid.shape[-1]
    sign, value = torch.linalg.slogdet(mid)
    relative = _relative(mid, bound + elimination_error(mid, n, local.u_acc))
    certain = relative < 1
    pivots = torch.linalg.lu_factor_ex(mid).LU.diagonal(dim1=-2, dim2=-1).abs().log().abs().sum(-1)
    function = 2 * local.ulp("log") * local.u_acc + n * local.u_acc
    moved = torch.where(certain, -torch.log1p(-relative), torch.inf)
    logarithm = settled(value, (moved + (pivots + moved + n) * function) * INFLATE + local.eta)
    return settled(sign, torch.where(certain, 0.0, torch.inf)), logarithm, *unsaid(local, 2, logarithm)


def _exact_det(call: Any, a: Any) -> Any:
    return np.array([determinant_of(a, call.numbers.real(1))], dtype=object)


def _exact_slogdet(call: Any, a: Any) -> Any:
    value = determinant_of(a, call.numbers.real(1))
    if call.output == 0:
        return (np.array([call.numbers.real(call.numbers.sign(value))], dtype=object),) * 2
    if call.numbers.rational:
        raise NotRationalError
    return (np.array([flint.arb(abs(value)).log()], dtype=object),) * 2


FAMILY = Family()
FAMILY.add(
    matrix_rule("aten._linalg_det.default", det, exact_matrix(_exact_det)),
    matrix_rule("aten._linalg_slogdet.default", slogdet, exact_matrix(_exact_slogdet)),
)
