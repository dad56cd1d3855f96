"""Pseudo-inverses and least squares, by what a perturbation does to a function of singular values.

The pseudo-inverse is f(sigma) = 1/sigma above a cutoff, 0 below, of the matrix ((0, A), (A^T, 0)). For symmetric H, H'
with eigenpairs (lambda_i, x_i), (lambda'_j, x'_j) the elements x_i^T (f(H) - f(H')) x'_j are those of H - H' times the
divided difference f[lambda_i, lambda'_j], so that

    |A'^+ - A^+|_F <= D |A' - A|_F,   D = max |f[., .]| <= max(1 / (s (s - w)), 1 / ((s - w) (s - z - w))),

s the least singular value above the cutoff, z the largest below it, w a bound on |A' - A|_2 (Weyl: no lambda' is
further from its lambda). This holds where every singular value stays on its side of the cutoff; where roundings may
change its side, or the cutoff's value, the result is unknown.

What is granted: singular values and vectors as in eigenvalues.py, c u |A|_F, and a product of the three factors, which
errs by (2 c + 2 n) u / s in norm. Least squares: x' = (A + E)^+ (b + h), column by column, |E|_F <= c u |A|_F, |h| <= c
u |b|, which Householder's QR achieves, with column pivoting or without (Higham, Accuracy and Stability of Numerical
Algorithms, theorem 20.3), and singular values as well; r' - r follows from |P' - P|_2 <= |E|_2 / (s - w).
Source: Bhatia, Matrix Analysis, theorem X.3.1's proof for the divided differences; Wedin, BIT 13 (1973), for a full
rank.
"""

from __future__ import annotations

from typing import Any

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotRationalError
from kernels_core.filter.arithmetic import Local
from kernels_core.program import Step
from kernels_core.rules.eigenvalues import finite, spectral_constant
from kernels_core.rules.exact_spectra import balls, singular_triples
from kernels_core.rules.inverses import GROWN, U64, settled, transposed
from kernels_core.rules.matrices import (
    certain_integers,
    exact_matrix,
    matrix_rule,
    parts_of,
    product_of,
    solve_of,
    transpose_of,
    with_vector,
)
from kernels_core.rules.record import Family
from kernels_core.rules.spectra import frobenius

Tensor = torch.Tensor
Objects = Any


def _size(local: Local, a: Enclosure) -> tuple[Tensor, float]:
    """Return a bound on |A' - A|_F, shape (..., 1, 1), and c u."""
    mid, bad = finite(a.mid)
    c = spectral_constant(*mid.shape[-2:]) * local.u_acc
    own = frobenius(mid) * (8 * max(mid.shape[-2:]) ** 2 * U64)  # float64's singular values
    size = frobenius(parts_of(a)[1]) + frobenius(mid) * c + own + local.eta
    return torch.where(bad, torch.inf, size * GROWN), c


def _sides(s: Tensor, low: Tensor, high: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return s, z and whether all values are on their side for certain: shapes (..., 1, 1)."""
    above = s - w > high
    certain = (above | (s + w < low)).all(-1, keepdim=True)
    least = torch.where(above, s, torch.inf).amin(-1, keepdim=True) if s.shape[-1] else torch.full_like(w, torch.inf)
    most = torch.where(above, 0.0, s).amax(-1, keepdim=True) if s.shape[-1] else torch.zeros_like(w)
    return least.unsqueeze(-1), most.unsqueeze(-1), certain.unsqueeze(-1)


def _steepness(least: Tensor, most: Tensor, w: Tensor) -> Tensor:
    """Return D; 0 where nothing is above the cutoff."""
    near = least - w
    found = torch.maximum(1 / (least * near), 1 / (near * (near - most)))
    found = torch.where(least.isinf(), 0.0, found * GROWN)
    return torch.where((near > most) & (near > 0) | least.isinf(), found, torch.inf)


def _cutoffs(local: Local, mid: Tensor, s: Tensor, w: Tensor, atol: Any, rtol: Any) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value, (..., 1), that max(atol, rtol sigma_max) may have."""
    absolute, relative = (None if t is None else t.mid.unsqueeze(-1) for t in (atol, rtol))
    if relative is None:
        default = max(mid.shape[-2:]) * torch.finfo(local.nominal).eps
        relative = s.new_tensor(default) if absolute is None else torch.where(absolute > 0, 0.0, default)
    absolute = torch.zeros_like(relative) if absolute is None else absolute
    top = s[..., :1] if s.shape[-1] else torch.zeros_like(w)
    low = torch.maximum(absolute, relative * (top - w).clamp(min=0)) * (1 - 4 * local.u_acc)
    high = torch.maximum(absolute, relative * (top + w)) * (1 + 4 * local.u_acc)
    return low, high


def pinv(
    local: Local,
    a: Enclosure,
    *,
    atol: Enclosure | None = None,
    rtol: Enclosure | None = None,
    hermitian: bool = False,
) -> Enclosure:
    """Return the pseudo-inverse; with `hermitian` of the symmetric matrix whose lower triangle is given."""
    if hermitian:
        lower = (torch.tril(t) + transposed(torch.tril(t, -1)) for t in parts_of(a))
        a = Enclosure(*lower)
    mid, _ = finite(a.mid)
    s = torch.linalg.svdvals(mid)
    size, c = _size(local, a)
    w = size.squeeze(-1)
    low, high = _cutoffs(local, mid, s, w, atol, rtol)
    least, most, certain = _sides(s, low, high, w)
    options = {k: v.mid for k, v in (("atol", atol), ("rtol", rtol)) if v is not None}
    if not options:
        options = {"rtol": s.new_tensor(max(mid.shape[-2:]) * torch.finfo(local.nominal).eps)}
    value = torch.linalg.pinv(mid, hermitian=hermitian, **options)
    formed = torch.where(least.isinf(), 0.0, (2 * c + 2 * max(mid.shape[-2:]) * local.u_acc) / least)
    error = torch.where(certain, _steepness(least, most, size) * size + formed, torch.inf)
    if rtol is not None and bool((rtol.mid >= 1).all()) and not bool((rtol.bound_or_zero() > 0).any()):
        error = torch.zeros_like(error)  # no value is above the largest one
    return settled(value, error.nan_to_num(torch.inf, torch.inf).expand(value.shape))


def lstsq(local: Local, a: Enclosure, b: Enclosure, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Return the solution, the squared residuals, the rank and the singular values, as far as the driver has them."""
    vector = len(with_vector(local.step)) == 2 and with_vector(local.step)[1] == 1
    right = Enclosure(*(t.unsqueeze(-1) for t in parts_of(b))) if vector else Enclosure(*parts_of(b))
    mid, _ = finite(a.mid)
    rows, columns = mid.shape[-2:]
    s = torch.linalg.svdvals(mid)
    size, c = _size(local, a)
    cutoff = (
        0.0 if driver == "gels" else (max(rows, columns) * torch.finfo(local.nominal).eps if rcond is None else rcond)
    )
    high = cutoff * (s[..., :1] + size.squeeze(-1)) * (1 + 4 * local.u_acc) if s.shape[-1] else size.squeeze(-1)
    full = (s - size.squeeze(-1) > high).all(-1)[..., None, None]
    least = s[..., -1:].unsqueeze(-1) if s.shape[-1] else torch.full_like(size, torch.inf)
    value = torch.linalg.lstsq(mid, right.mid, driver="gelsd").solution
    norm = right.mid.square().sum(-2, keepdim=True).sqrt()
    moved = right.bound_or_zero().square().sum(-2, keepdim=True).sqrt() + c * norm
    error = _steepness(least, torch.zeros_like(least), size) * size * norm + moved / (least - size)
    error = torch.where(full, error * GROWN, torch.inf) + local.eta
    solution = settled(value, error.expand(value.shape))
    found: list[Enclosure | None] = [solution]
    rest = (right.mid - mid @ value).square().sum(-2)
    more = ((moved + size / (least - size) * norm) * GROWN).squeeze(-2)
    change = (2 * rest.sqrt() + more) * more + rest * (rows + 4) * local.u_acc
    found.append(settled(rest, torch.where(full.squeeze(-1), change, torch.inf) + local.eta))
    return _as_returned(local, found, full, s, size, vector)


def _as_returned(
    local: Local, found: list[Enclosure | None], full: Tensor, s: Tensor, size: Tensor, vector: bool
) -> list[Enclosure | None]:
    """Return the four results, without elements where the driver leaves one out."""
    metas = local.step.metas
    rank = torch.full(full.shape[:-2], s.shape[-1], dtype=torch.int64)
    found += [certain_integers(rank, ~full[..., 0, 0]), settled(s, size.squeeze(-1).expand(s.shape))]
    if vector and found[0] is not None:
        found[0] = Enclosure(found[0].mid.squeeze(-1), found[0].bound_or_zero().squeeze(-1))
    for k, meta in enumerate(metas):
        value = found[k]
        if meta is not None and value is not None and value.shape != torch.Size(meta.shape):
            dtype = torch.float64 if meta.dtype.is_floating_point else meta.dtype
            found[k] = Enclosure(torch.zeros(meta.shape, dtype=dtype))
    return found


def _with_cutoffs(step: Step) -> list[int]:
    return [2] + [0] * (len(step.operands) - 1)


def _float(value: Any) -> float:
    if isinstance(value, flint.arb):
        return float(value.mid())
    return int(value.p) / int(value.q)  # Python's integers divide where neither has a float of its own


def _approximate(a: Objects) -> np.ndarray:
    """Return the singular values in float64."""
    values = np.array([_float(v) for v in a.reshape(-1)], dtype=np.float64).reshape(a.shape)
    return np.linalg.svd(values, compute_uv=False) if a.size else np.zeros(0)


def _exact_pinv(call: Any, a: Objects, *cutoffs: Objects) -> Objects:
    """Return (A^T A)^-1 A^T where every singular value is far above the cutoff, else the sum over those above it."""
    options = call.step.kwargs
    if options.get("hermitian", False):
        a = np.where(np.tri(len(a), dtype=bool), a, transpose_of(a))
    given = [k for k in ("atol", "rtol") if options.get(k) is not None]
    cut = {k: v.reshape(-1)[0] for k, v in zip(given, cutoffs, strict=True)}
    absolute, relative = cut.get("atol", call.numbers.of(0.0)), cut.get("rtol")
    if relative is None:
        default = max(a.shape) * torch.finfo(call.meta.dtype).eps if a.size else 0.0
        relative = call.numbers.of(0.0 if absolute > 0 else default)
    s = _approximate(a)
    if not len(s) or s[-1] > 1e-6 * s[0] + 2 * max(_float(absolute), _float(relative) * s[0]):
        return _full_rank(a)
    if call.numbers.rational:
        raise NotRationalError
    u, values, v = singular_triples(balls(call, a))
    limit = absolute.max(relative * values[0])
    kept = [] if relative >= 1 else [k for k, value in enumerate(values) if call.numbers.less(limit, value)]
    zero = np.full((a.shape[1], a.shape[0]), flint.arb(0), dtype=object)
    return sum((np.outer(v[:, k], u[:, k]) / values[k] for k in kept), zero)


def _full_rank(a: Objects) -> Objects:
    if not a.size:
        return transpose_of(a)
    if a.shape[0] < a.shape[1]:
        return transpose_of(_full_rank(transpose_of(a)))
    return solve_of(product_of(transpose_of(a), a), transpose_of(a))


def _exact_lstsq(call: Any, a: Objects, b: Objects) -> tuple[Objects, ...]:
    x = product_of(_full_rank(a), b) if a.size and b.size else np.empty((a.shape[1], b.shape[1]), dtype=object)
    rest = b - product_of(a, x) if x.size else b
    residuals = np.array([*(sum((v * v for v in rest[:, k]), call.numbers.real(0)) for k in range(b.shape[1])), None])
    if call.output < 2:
        return x, residuals[:-1]
    return x, residuals[:-1], None, np.array([*singular_triples(balls(call, a))[1], None], dtype=object)[:-1]


FAMILY = Family()
FAMILY.add(
    matrix_rule("aten.linalg_pinv.atol_rtol_tensor", pinv, exact_matrix(_exact_pinv, _with_cutoffs), _with_cutoffs),
    matrix_rule("aten.linalg_lstsq.default", lstsq, exact_matrix(_exact_lstsq, with_vector), with_vector),
)
