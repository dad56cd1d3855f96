"""Recurrences along a sequence: linear attention, gated and selective scans.

The plain names are the recurrence, one step after the other, as streaming kernels take it. `parallel` names the same
sums in closed form, whose terms may be added in any order: blocked, chunked and associative scans.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def gated_scan(gate: Tensor, input: Tensor, initial_state: Tensor | None = None) -> Tensor:
    """Return the states h_t = gate_t h_(t-1) + x_t, for t = 1 ... T.

    Args:
        gate: [..., T, D].
        input: [..., T, D].
        initial_state: [..., D], h_0; zero where left out.
    """
    states = _states(wide(gate), wide(input), None if initial_state is None else wide(initial_state))
    return torch.stack(states, -2).to(input.dtype)


def gated_scan_parallel(gate: Tensor, input: Tensor, initial_state: Tensor | None = None) -> Tensor:
    """Return h_t = sum over s of (gate_(s+1) ... gate_t) x_s, the products and sums in any order."""
    x = wide(input)
    decay = _decay(wide(gate))
    states = (decay * x.unsqueeze(-3)).sum(-2)
    if initial_state is not None:
        states = states + wide(gate).cumprod(-2) * wide(initial_state).unsqueeze(-2)
    return states.to(input.dtype)


def linear_attention(query: Tensor, key: Tensor, value: Tensor, initial_state: Tensor | None = None) -> Tensor:
    """Return o_t = q_t S_t with S_t = S_(t-1) + k_t^T v_t: attention without a softmax, which sees the past and itself.

    Nothing is scaled or normalised.

    Args:
        query: [..., T, D].
        key: [..., T, D].
        value: [..., T, Dv].
        initial_state: [..., D, Dv], S_0; zero where left out.
    """
    q, written = wide(query), wide(key).unsqueeze(-1) * wide(value).unsqueeze(-2)
    state, outputs = None if initial_state is None else wide(initial_state), []
    for t in range(query.shape[-2]):
        state = written[..., t, :, :] if state is None else state + written[..., t, :, :]
        outputs.append((q[..., t, None, :] @ state).squeeze(-2))
    return torch.stack(outputs, -2).to(query.dtype)


def linear_attention_parallel(query: Tensor, key: Tensor, value: Tensor, initial_state: Tensor | None = None) -> Tensor:
    """Return o_t = sum over s <= t of (q_t . k_s) v_s + q_t S_0, as kernels form it from the matrix of products."""
    q = wide(query)
    out = (q @ wide(key).transpose(-1, -2)).tril() @ wide(value)
    return (out if initial_state is None else out + q @ wide(initial_state)).to(query.dtype)


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
) -> Tensor:
    """Return y_t = C_t h_t + D u_t with h_t = exp(delta_t A) h_(t-1) + delta_t B_t u_t, h_0 = 0; times silu(z).

    Args:
        u: [batch, channels, T].
        delta: [batch, channels, T].
        A: [channels, N].
        B: [batch, N, T].
        C: [batch, N, T].
        D: [channels].
        z: [batch, channels, T], a gate.
        delta_bias: [channels], added to delta.
        delta_softplus: delta becomes log(1 + exp(delta)), after the bias.

    Source: Gu & Dao, Mamba (2023), equations 2 and 4 with the Euler step for B.
    """
    gate, written = _selective_terms(u, delta, A, B, delta_bias, delta_softplus)
    return _selective_output(torch.stack(_states(gate, written, None), -2), u, C, D, z)


def selective_scan_parallel(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
) -> Tensor:
    """Return `selective_scan` with its states in closed form, as `gated_scan.parallel` has them."""
    gate, written = _selective_terms(u, delta, A, B, delta_bias, delta_softplus)
    return _selective_output((_decay(gate) * written.unsqueeze(-3)).sum(-2), u, C, D, z)


def _states(gate: Tensor, x: Tensor, state: Tensor | None) -> list[Tensor]:
    """Return h_t = gate_t h_(t-1) + x_t for each t of the last dimension but one."""
    states = []
    for g, one in zip(gate.unbind(-2), x.unbind(-2), strict=True):
        state = one if state is None else g * state + one
        states.append(state)
    return states


def _decay(gate: Tensor) -> Tensor:
    """Return gate_(s+1) ... gate_t at [..., t, s, :], 1 where t = s and 0 where t < s."""
    steps = torch.arange(gate.shape[-2], device=gate.device)
    later = (steps.unsqueeze(-1) > steps).unsqueeze(-1)
    factors = torch.where(later, gate.unsqueeze(-2), 1.0)
    return factors.cumprod(-3).masked_fill((steps.unsqueeze(-1) < steps).unsqueeze(-1), 0.0)


def _selective_terms(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, delta_bias: Tensor | None, delta_softplus: bool
) -> tuple[Tensor, Tensor]:
    """Return exp(delta A) and delta B u, [batch, channels, T, N]."""
    step = wide(delta) if delta_bias is None else wide(delta) + wide(delta_bias).unsqueeze(-1)
    step = (F.softplus(step) if delta_softplus else step).unsqueeze(-1)
    written = step * wide(B).transpose(-1, -2).unsqueeze(1) * wide(u).unsqueeze(-1)
    return torch.exp(step * wide(A).unsqueeze(-2)), written


def _selective_output(states: Tensor, u: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None) -> Tensor:
    y = (states * wide(C).transpose(-1, -2).unsqueeze(1)).sum(-1)
    y = y if D is None else y + wide(D).unsqueeze(-1) * wide(u)
    y = y if z is None else y * (wide(z) * torch.sigmoid(wide(z)))
    return y.to(u.dtype)


ENTRIES = {
    "gated_scan": Reference(
        gated_scan, "gated_scan", algorithms={"parallel": Reference(gated_scan_parallel, "gated_scan.parallel")}
    ),
    "linear_attention": Reference(
        linear_attention,
        "linear_attention",
        algorithms={"parallel": Reference(linear_attention_parallel, "linear_attention.parallel")},
    ),
    "selective_scan": Reference(
        selective_scan,
        "selective_scan",
        algorithms={"parallel": Reference(selective_scan_parallel, "selective_scan.parallel")},
    ),
}
