"""Exact factors by the algorithms themselves, in rationals or balls; comparisons that balls cannot decide raise."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels_core.exact.numbers import Numbers
from kernels_core.rules.matrices import transpose_of, triangle_of

Objects = Any


def _eliminated(n: Numbers, a: Objects) -> tuple[Objects, list[int]]:
    """Return compact LU factors and the order of the rows, the largest pivot first (the first of equals)."""
    a, (rows, columns) = a.copy(), a.shape
    order = list(range(rows))
    for k in range(min(rows, columns)):
        best = k
        for i in range(k + 1, rows):
            if n.less(abs(a[best, k]), abs(a[i, k])):
                best = i
        a[[k, best]], order[k], order[best] = a[[best, k]], order[best], order[k]
        if n.sign(a[k, k]) == 0:
            continue
        for i in range(k + 1, rows):
            a[i, k] = n.divide(a[i, k], a[k, k])
            a[i, k + 1 :] = a[i, k + 1 :] - a[i, k] * a[k, k + 1 :]
    return a, order


def _three(n: Numbers, compact: Objects, order: list[int]) -> tuple[Objects, Objects, Objects]:
    short = min(compact.shape)
    permutation = np.full((len(order), len(order)), n.real(0), dtype=object)
    for k, row in enumerate(order):
        permutation[row, k] = n.real(1)
    return permutation, triangle_of(compact[:, :short], False, True), triangle_of(compact[:short], True, False)


def exact_lu_factor(call: Any, a: Objects) -> tuple[Objects, ...]:
    """Return the compact factors (pivots and info come from the filter)."""
    return (_eliminated(call.numbers, a)[0],)


def exact_lu(call: Any, a: Objects) -> tuple[Objects, ...]:
    """Return P, L and U."""
    return _three(call.numbers, *_eliminated(call.numbers, a))


def exact_unpack(call: Any, compact: Objects, pivots: Objects) -> tuple[Objects, ...]:
    """Return P, L and U from compact factors."""
    order = list(range(compact.shape[0]))
    for k, other in enumerate(int(p) - 1 for p in pivots.reshape(-1)):
        order[k], order[other] = order[other], order[k]
    return _three(call.numbers, compact, order)


def exact_cholesky(call: Any, a: Objects) -> tuple[Objects, ...]:
    """Return the Cholesky factor."""
    n, upper = call.numbers, bool(call.step.argument(1, "upper", False))
    a = transpose_of(a) if upper else a.copy()
    size = a.shape[0]
    lower = np.full(a.shape, n.real(0), dtype=object)
    for j in range(size):
        rest = a[j, j] - sum((v * v for v in lower[j, :j]), n.real(0))
        lower[j, j] = np.asarray(n.sqrt(rest)).item()
        for i in range(j + 1, size):
            inner = sum((lower[i, k] * lower[j, k] for k in range(j)), n.real(0))
            lower[i, j] = n.divide(a[i, j] - inner, lower[j, j])
    return (transpose_of(lower) if upper else lower,)
