"""Update steps of optimisers: every tensor of the state in its own dtype, rounded once at the end of the step."""

from __future__ import annotations

from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def sgd_step(
    parameter: Tensor,
    grad: Tensor,
    momentum_buffer: Tensor,
    lr: float = 0.1,
    momentum: float = 0.9,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return p' = p - lr m' and the new buffer m' = momentum m + (1 - dampening) (grad + weight_decay p).

    Args:
        parameter: p, of any shape.
        grad: of that shape.
        momentum_buffer: m, of that shape.
        lr: learning rate.
        momentum: factor of the buffer.
        dampening: share of the gradient that does not enter it.
        weight_decay: factor of p in the gradient.
        nesterov: step by the decayed gradient + momentum m' instead of m'.
    """
    p, g, buffer = wide(parameter), wide(grad), wide(momentum_buffer)
    g = g + weight_decay * p if weight_decay else g
    buffer = momentum * buffer + (1 - dampening) * g
    p = p - lr * (g + momentum * buffer if nesterov else buffer)
    return p.to(parameter.dtype), buffer.to(momentum_buffer.dtype)


def adam_step(
    parameter: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: int = 1,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the new parameter and moments of Adam, or of AdamW with decoupled decay.

    m' = beta1 m + (1 - beta1) g, v' = beta2 v + (1 - beta2) g^2, p' = p - lr m^ / (sqrt(v^) + eps) with m^ = m' / (1 -
    beta1^step), v^ = v' / (1 - beta2^step). Epsilon is added to the root, not under it.

    Args:
        parameter: p, of any shape.
        grad: g, of that shape.
        exp_avg: m, of that shape.
        exp_avg_sq: v, of that shape, not negative.
        step: number of this step, from 1.
        lr: learning rate.
        beta1: factor of m.
        beta2: factor of v.
        eps: added to the root of v^.
        weight_decay: factor of p.
        decoupled: the decay shrinks p by lr weight_decay p (AdamW), else it enters the gradient (Adam).
    """
    g = _decayed(parameter, grad, 0.0 if decoupled else weight_decay)
    m = beta1 * wide(exp_avg) + (1 - beta1) * g
    return _adam(parameter, g, m, exp_avg, exp_avg_sq, step, lr, beta1, beta2, eps, weight_decay * decoupled)


def adam_step_lerp(
    parameter: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: int = 1,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `adam_step` with m' = m + (1 - beta1) (g - m), as PyTorch's own optimiser forms it."""
    g = _decayed(parameter, grad, 0.0 if decoupled else weight_decay)
    m = wide(exp_avg) + (1 - beta1) * (g - wide(exp_avg))
    return _adam(parameter, g, m, exp_avg, exp_avg_sq, step, lr, beta1, beta2, eps, weight_decay * decoupled)


def _decayed(parameter: Tensor, grad: Tensor, weight_decay: float) -> Tensor:
    return wide(grad) + weight_decay * wide(parameter) if weight_decay else wide(grad)


def _adam(
    parameter: Tensor,
    g: Tensor,
    m: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return p', m', v' from m'. The quotients are written in the order that rounds most often."""
    v = beta2 * wide(exp_avg_sq) + (1 - beta2) * (g * g)
    p = wide(parameter)
    p = p - lr * weight_decay * p if weight_decay else p
    denominator = v.sqrt() / (1 - beta2**step) ** 0.5 + eps
    p = p - lr * (m / (1 - beta1**step)) / denominator
    return p.to(parameter.dtype), m.to(exp_avg.dtype), v.to(exp_avg_sq.dtype)


ENTRIES = {
    "sgd_step": Reference(sgd_step, "sgd_step"),
    "adam_step": Reference(adam_step, "adam_step", algorithms={"lerp": Reference(adam_step_lerp, "adam_step.lerp")}),
}
