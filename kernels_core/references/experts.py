"""Mixture of experts with a given assignment: routing is no part of it, so nothing jumps."""

from __future__ import annotations

from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def moe(input: Tensor, weight: Tensor, assignment: Tensor, gates: Tensor) -> Tensor:
    """Return y_t = sum over k of gates[t, k] (x_t W_e), e = assignment[t, k], in float32 with one rounding.

    Args:
        input: [T, K], the tokens.
        weight: [E, K, N], one matrix for each expert.
        assignment: [T, k], the experts of each token, int64; an expert may come twice.
        gates: [T, k], their weights.
    """
    return _mixed(_per_expert(input, weight, assignment), gates).to(input.dtype)


def moe_stored(input: Tensor, weight: Tensor, assignment: Tensor, gates: Tensor) -> Tensor:
    """Return `moe` with the experts' results rounded to the dtype of the input before they are weighted.

    Kernels that write the result of a grouped matrix product and combine it afterwards round so.
    """
    stored = _per_expert(input, weight, assignment).to(input.dtype)
    return _mixed(wide(stored), gates).to(input.dtype)


def _per_expert(input: Tensor, weight: Tensor, assignment: Tensor) -> Tensor:
    """Return x_t W_e for each token and expert of it, [T, k, N]."""
    return (wide(input)[:, None, None] @ wide(weight)[assignment]).squeeze(-2)


def _mixed(results: Tensor, gates: Tensor) -> Tensor:
    return (wide(gates).unsqueeze(-1) * results).sum(-2)


ENTRIES = {"moe": Reference(moe, "moe", algorithms={"stored": Reference(moe_stored, "moe.stored")})}
