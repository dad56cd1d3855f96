"""The matrix exponential.

Every term of the power series of exp(A + F) - exp(A) is one of that of exp(|A| + |F|) - exp(|A|), elementwise, so

    |exp(A + F) - exp(A)| <= exp(|A| + E) - exp(|A|) <= L(|A| + E, E)   for |F| <= E,

L the Frechet derivative of the exponential, read from the exponential of the block matrix ((A, E), (0, A)).

What is granted is scaling and squaring: B = A / 2^s, a polynomial of B by at most five products and about twenty scaled
sums, and s squarings. The polynomial is cut off where it is the exponential of B + D, |D|_1 <= u |B|_1, D a series in
the powers of B: the result is that of A + 2^s D, which is granted in every element that a power of A reaches, however
small exp(|A|) is there. Its evaluation errs by (5 n + 20) u of exp(|B|) elementwise; a squaring doubles the relative
error and adds n u, so the result errs by 2^s (6 n + 20) u exp(|A|), where 2^s <= max(1, 4 |A|_1) for the radii 1/2 and
above within which the polynomials are cut off so.
Source: Higham, Functions of Matrices, section 10.3; Bader, Blanes and Casas, Mathematics 7 (2019), PyTorch's algorithm.
"""

from __future__ import annotations

from typing import Any

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotRationalError
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.inverses import GROWN, settled
from kernels_core.rules.matrices import exact_matrix, matrix_rule, parts_of
from kernels_core.rules.record import Family


def matrix_exp(local: Local, a: Enclosure) -> Enclosure:
    """Return exp(A)."""
    mid, bound = parts_of(a)
    n = mid.shape[-1]
    finite = mid.nan_to_num(torch.nan, torch.nan, torch.nan)
    size = finite.abs()
    sums = size.sum(-2).amax(-1)[..., None, None] if n else size.new_zeros(())
    bound = bound + sums * (local.u_acc * GROWN) * _reached(size + bound)
    power = _exponential(size)
    both = _exponential(_block(size + bound, bound))[..., :n, n:]
    relative = torch.clamp(4 * sums, min=1) * ((6 * n + 20) * local.u_acc)
    # exp(|A|) and the block in float64 are themselves good to the same relative error with u = 2^-53
    own = 1 + 2 * torch.clamp(8 * sums, min=1) * ((12 * n + 20) * 2.0**-53)
    bound = (both + (power + both) * relative) * own * GROWN + n * local.eta
    return local.stored(settled(_exponential(finite), bound))


def _exponential(a: torch.Tensor) -> torch.Tensor:
    """Return exp(A) in float64 by the polynomial of degree 18: PyTorch's of degree 8 is wrong (docs/findings.md, 42).

    PyTorch takes the degree by the 1-norm. A row and a column more, with 1 where they meet and 0 elsewhere, make that
    at least 1, where the degree is 18; they change no other element of the exponential.
    """
    n = a.shape[-1]
    bordered = torch.nn.functional.pad(a, (0, 1, 0, 1))
    bordered[..., n, n] = 1
    result: torch.Tensor = torch.linalg.matrix_exp(bordered)
    return result[..., :n, :n]


def _reached(size: torch.Tensor) -> torch.Tensor:
    """Return 1 where a power of the matrix may have an element, 0 elsewhere."""
    reached = torch.eye(size.shape[-1], dtype=size.dtype, device=size.device) + (size != 0)
    for _ in range(max(0, size.shape[-1] - 1).bit_length()):
        reached = (reached @ reached > 0).to(size.dtype)
    return (reached > 0).to(size.dtype)


def _block(a: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    return torch.cat((torch.cat((a, e), -1), torch.cat((torch.zeros_like(a), a), -1)), -2)


def _exact(call: Any, a: Any) -> Any:
    if call.numbers.rational:
        raise NotRationalError
    matrix: Any = flint.arb_mat
    return np.array(matrix(*a.shape, list(a.reshape(-1))).exp().entries() if a.size else [], dtype=object)


FAMILY = Family()
FAMILY.add(matrix_rule("aten.linalg_matrix_exp.default", matrix_exp, exact_matrix(_exact)))
