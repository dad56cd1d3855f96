"""Products of Householder reflections H_1 H_2 ... H_k, H_i = I - tau_i v_i v_i^T, in terms of operations with rules.

v_i has i zeros, a one, and the column i of `input` below. Kernels apply one reflection after the other, or blocks of
them (I - V T V^T) with T a sum of products of the same v_i^T v_j: the one-by-one form has the larger bound.
Source: LAPACK xORG2R, xORM2R; Higham, Accuracy and Stability of Numerical Algorithms, section 19.5, for the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensor = torch.Tensor
aten = torch.ops.aten


def _applied(input: Tensor, tau: Tensor, other: Tensor, *, backwards: bool) -> Tensor:
    """Return H_1 ... H_k times `other`, or H_k ... H_1 times it."""
    vectors = torch.tril(input, -1)
    places, order = torch.arange(input.shape[-2], device=input.device), range(tau.shape[-1])
    for k in order if backwards else reversed(order):
        v = torch.where(places == k, 1.0, vectors[..., k])
        inner = (v.unsqueeze(-2) @ other) * tau[..., k, None, None]
        other = other - v.unsqueeze(-1) * inner
    return other


def _householder_product(input: Tensor, tau: Tensor) -> Tensor:
    rows, columns = input.shape[-2:]
    identity = torch.eye(rows, columns, dtype=input.dtype, device=input.device)
    return _applied(input, tau, identity.expand(*input.shape[:-2], rows, columns), backwards=False)


def _ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    if left:
        return _applied(input, tau, other, backwards=transpose)
    return _applied(input, tau, other.mT, backwards=not transpose).mT


REFLECTIONS: Mapping[Any, Callable[..., Any]] = {
    aten.linalg_householder_product.default: _householder_product,
    aten.ormqr.default: _ormqr,
}
