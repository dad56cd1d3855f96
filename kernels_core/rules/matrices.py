"""What rules over whole matrices share: operands as pairs, cones of whole matrices, exact linear algebra in FLINT."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotRationalError, NotSeparatedError
from kernels_core.filter.arithmetic import Local
from kernels_core.program import Meta, Step
from kernels_core.rules.cones import broadcast_index, integer_value
from kernels_core.rules.record import Rule

Tensor = torch.Tensor
Objects = Any


def parts_of(value: Enclosure) -> tuple[Tensor, Tensor]:
    """Return mid and bound, the bound in the full shape."""
    return value.mid, value.bound_or_zero().expand(value.shape)


def certain_integers(mid: Tensor, unsure: Tensor) -> Enclosure:
    """Return integers that are unsure where said."""
    return Enclosure(mid, None, unsure.expand(mid.shape))


def unsaid(local: Local, first: int, value: Enclosure) -> list[Enclosure | None]:
    """Return what belongs to the results from `first` on: factors of which nothing is said, unsure pivots, and info.

    Info is 0 for certain where the value beside it is bounded; pivots (of the rank of a vector) stay unsure.
    """
    found: list[Enclosure | None] = []
    for meta in local.step.metas[first:]:
        if meta is None:
            found.append(None)
            continue
        mid = torch.zeros(meta.shape, dtype=meta.dtype, device=value.mid.device)
        if meta.dtype.is_floating_point:
            found.append(Enclosure(mid.double(), torch.full(meta.shape, torch.inf, dtype=torch.float64)))
        else:
            unsure = torch.ones_like(mid, dtype=torch.bool)
            if meta.shape == local.step.operand_metas[0].shape[:-2]:
                known = value.bound_or_zero().expand(value.shape).isfinite().unsqueeze(-1)
                unsure = ~known.flatten(len(meta.shape)).all(-1)
            found.append(certain_integers(mid, unsure))
    return found


def permuted(pivots: Tensor, rows: int) -> Tensor:
    """Return the rows in the order that LAPACK's interchanges (from 1, one after the other) bring them to."""
    order = torch.arange(rows, device=pivots.device).expand(*pivots.shape[:-1], rows).clone()
    for k in range(pivots.shape[-1]):
        other = (pivots[..., k : k + 1].long() - 1).clamp(0, max(0, rows - 1))
        here, there = order[..., k : k + 1].clone(), order.gather(-1, other)
        order.scatter_(-1, other, here)
        order[..., k : k + 1] = torch.where(other == k, here, there)
    return order


Ranks = Callable[[Step], Sequence[int]]


def _matrices(step: Step) -> Sequence[int]:
    """Every operand is a matrix, integers (pivots) are vectors."""
    return [2 if meta.dtype.is_floating_point else 1 for meta in step.operand_metas]


def with_vector(step: Step) -> Sequence[int]:
    """A matrix and a matrix or vector, as `torch.linalg.solve` tells them apart."""
    a, b = (meta.shape for meta in step.operand_metas)
    return [2, 1 if len(b) == 1 or (len(a) - 1 == len(b) and b == a[:-1]) else 2]


def _batches(step: Step, ranks: Ranks) -> list[tuple[int, ...]]:
    return [meta.shape[: len(meta.shape) - rank] for meta, rank in zip(step.operand_metas, ranks(step), strict=True)]


def _place(call: Any, ranks: Ranks) -> tuple[Meta, np.ndarray, int]:
    """Return the batch, which matrix of it each requested element belongs to, and the elements of one result."""
    batch = Meta(tuple(torch.broadcast_shapes(*_batches(call.step, ranks))), torch.float64)
    size = max(1, call.meta.numel // max(1, batch.numel))
    return batch, call.index // size, size


def _whole_cone(ranks: Ranks) -> Callable[[Any], list[np.ndarray]]:
    def cone(call: Any) -> list[np.ndarray]:
        batch, place, _ = _place(call, ranks)
        cones = []
        for own, meta in zip(_batches(call.step, ranks), call.step.operand_metas, strict=True):
            size = math.prod(meta.shape[len(own) :])
            cones.append(broadcast_index(Meta(own, meta.dtype), batch, place)[:, None] * size + np.arange(size))
        return cones

    return cone


def exact_matrix(compute: Callable[..., Any], ranks: Ranks = _matrices) -> Callable[..., Objects]:
    """Turn `compute(call, *matrices)` on one batch into a rule's exact part; a tuple holds several results."""

    def exact(call: Any, *operands: Objects) -> Objects:
        if not call.meta.dtype.is_floating_point:
            return integer_value(call)
        _, place, size = _place(call, ranks)
        found, values = {}, np.empty(len(call.index), dtype=object)
        shapes = [m.shape[len(m.shape) - r :] for m, r in zip(call.step.operand_metas, ranks(call.step), strict=True)]
        for k, (batch, index) in enumerate(zip(place, call.index, strict=True)):
            if batch not in found:
                given = [o[k].reshape(s if len(s) == 2 else (-1, 1)) for o, s in zip(operands, shapes, strict=True)]
                result = compute(call, *given)
                found[batch] = np.asarray(result[call.output] if isinstance(result, tuple) else result).reshape(-1)
            values[k] = found[batch][index % size]
        return values

    return exact


def matrix_rule(name: str, bound: Callable[..., Any], exact: Callable[..., Any], ranks: Ranks = _matrices) -> Rule:
    """Return the rule of an operation on whole matrices."""
    return Rule(name, bound, _whole_cone(ranks), exact, classed=True)


def _flint(a: Objects) -> Any:
    rational = all(not isinstance(v, flint.arb) for v in a.reshape(-1))
    matrix: Any = flint.fmpq_mat if rational else flint.arb_mat
    return matrix(*a.shape, list(a.reshape(-1)))


def _array(a: Any, shape: tuple[int, ...]) -> Objects:
    values = np.empty(shape, dtype=object)
    values.reshape(-1)[:] = a.entries()
    return values


def _settled(function: Callable[[], Any], shape: tuple[int, ...], a: Objects) -> Objects:
    if not a.size:
        return np.empty(shape, dtype=object)
    try:
        return _array(function(), shape)
    except ZeroDivisionError:
        raise (NotSeparatedError if isinstance(a.reshape(-1)[0], flint.arb) else NotRationalError) from None


def solve_of(a: Objects, b: Objects) -> Objects:
    """Return X of A X = B."""
    mixed = isinstance(a.reshape(-1)[0], flint.arb) if a.size else False
    right = np.vectorize(flint.arb, otypes=[object])(b) if mixed and b.size else b
    return _settled(lambda: _flint(a).solve(_flint(right)), b.shape, a if b.size else b)


def inverse_of(a: Objects) -> Objects:
    """Return the inverse."""
    return _settled(lambda: _flint(a).inv(), a.shape, a)


def determinant_of(a: Objects, one: Any) -> Any:
    """Return the determinant (of no rows: `one`)."""
    return _flint(a).det() if a.size else one


def product_of(a: Objects, b: Objects) -> Objects:
    """Return A B."""
    return a.dot(b) if a.size and b.size else np.empty((a.shape[0], b.shape[1]), dtype=object)


def transpose_of(a: Objects) -> Objects:
    """Return the transposed matrix."""
    return a.transpose().copy()


def triangle_of(a: Objects, upper: bool, unit: bool) -> Objects:
    """Return a triangle of A, zero elsewhere, with a unit diagonal where said."""
    zero = a.reshape(-1)[0] * 0 if a.size else 0
    result = np.full(a.shape, zero, dtype=object)
    for i, j in np.ndindex(a.shape):
        if (j > i if upper else j < i) or (i == j and not unit):
            result[i, j] = a[i, j]
        elif i == j:
            result[i, j] = zero + 1
    return result
