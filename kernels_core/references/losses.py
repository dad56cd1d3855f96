"""Losses of logits and probabilities, in float32 or wider, with one rounding of the result.

`reduction` is "mean", "sum" or "none"; a mean over nothing is NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels_core.decompositions.compute_format import wide
from kernels_core.errors import UsageError, nearest
from kernels_core.reference import Reference


def cross_entropy(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    """Return -sum_c q_c log_softmax(input)_c + z_loss logsumexp(input)^2, reduced over the rows.

    The target distribution q is (1 - label_smoothing) at the target plus label_smoothing / C everywhere.

    Args:
        input: logits, [N, C] (or as `torch.nn.functional.cross_entropy` takes them).
        target: class indices, int64, [N]; rows with `ignore_index` count neither in the sum nor in the mean.
        reduction: "mean", "sum" or "none". The mean over no rows is NaN.
        ignore_index: the target that marks a row as absent.
        label_smoothing: share of the uniform distribution in q, from 0 to 1.
        z_loss: weight of the squared logsumexp, which keeps logits from drifting.
    """
    return _cross_entropy(wide(input), target, reduction, ignore_index, label_smoothing, z_loss).to(input.dtype)


def linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    """Return the cross entropy of the logits input weight^T + bias, which stay in float32 or wider.

    Args:
        input: [N, K].
        weight: [C, K].
        target: [N], as for `cross_entropy`, like what follows.
        bias: [C].
        reduction: "mean", "sum" or "none".
        ignore_index: the target that marks a row as absent.
        label_smoothing: share of the uniform distribution.
        z_loss: weight of the squared logsumexp.
    """
    logits = _logits(input, weight, bias)
    return _cross_entropy(logits, target, reduction, ignore_index, label_smoothing, z_loss).to(input.dtype)


def linear_cross_entropy_narrow(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    """Return `linear_cross_entropy` with logits, and their gradient, rounded to the dtype of the input.

    Kernels that form the logits chunk by chunk in 16 bit, and write their gradient over them, round so.
    """
    logits = wide(_logits(input, weight, bias).to(input.dtype))
    return _cross_entropy(logits, target, reduction, ignore_index, label_smoothing, z_loss).to(input.dtype)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Return the sum of t (log t - x), the Kullback-Leibler divergence of the target from exp(input).

    Args:
        input: logarithms of probabilities, [..., C].
        target: probabilities, or their logarithms; where t = 0 the term is 0.
        reduction: "mean" (over all elements), "batchmean" (over the first dimension), "sum" or "none".
        log_target: the target is given as logarithms.
    """
    x, t = wide(input), wide(target)
    terms = torch.exp(t) * (t - x) if log_target else torch.xlogy(t, t) - t * x
    return _reduced(terms, reduction).to(input.dtype)


def jsd(input: Tensor, target: Tensor, beta: float = 0.5, reduction: str = "batchmean") -> Tensor:
    """Return beta KL(P || M) + (1 - beta) KL(Q || M), M = beta P + (1 - beta) Q, the Jensen-Shannon divergence.

    M is formed from probabilities: elements where both may underflow are unconstrained.

    Args:
        input: logarithms of the probabilities Q, [N, C].
        target: logarithms of the probabilities P.
        beta: share of P in the mixture, between 0 and 1, both excluded.
        reduction: "batchmean" (over the first dimension), "mean", "sum" or "none".
    """
    log_q, log_p = wide(input), wide(target)
    q, p = torch.exp(log_q), torch.exp(log_p)
    log_m = torch.log(beta * p + (1 - beta) * q)
    return _reduced(beta * p * (log_p - log_m) + (1 - beta) * q * (log_q - log_m), reduction).to(input.dtype)


def jsd_shifted(input: Tensor, target: Tensor, beta: float = 0.5, reduction: str = "batchmean") -> Tensor:
    """Return `jsd` with log M = logaddexp(log P + log beta, log Q + log (1 - beta)), where no mixture underflows."""
    log_q, log_p = wide(input), wide(target)
    log_m = torch.logaddexp(log_p + math.log(beta), log_q + math.log(1 - beta))
    p, q = beta * torch.exp(log_p), (1 - beta) * torch.exp(log_q)
    return _reduced(p * (log_p - log_m) + q * (log_q - log_m), reduction).to(input.dtype)


def focal_loss(
    input: Tensor, target: Tensor, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "mean"
) -> Tensor:
    """Return -a (1 - p)^gamma log p, p the probability that sigmoid(input) gives to the target of each element.

    The complement 1 - p is a difference, as kernels form it: where p is near 1 it has the rounding of p.

    Args:
        input: logits of any shape.
        target: 0 or 1 (or between), of that shape.
        alpha: weight a of the target 1; the target 0 has 1 - alpha.
        gamma: how much elements that are right already are left out.
        reduction: "mean", "sum" or "none".
    """
    x, t = wide(input), wide(target)
    p = torch.sigmoid(x)
    complement = 1 - (p * t + (1 - p) * (1 - t))
    loss = F.binary_cross_entropy_with_logits(x, t, reduction="none") * complement**gamma
    return _reduced((alpha * t + (1 - alpha) * (1 - t)) * loss, reduction).to(input.dtype)


def _logits(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    logits = wide(input) @ wide(weight).transpose(-1, -2)
    return logits if bias is None else logits + wide(bias)


def _cross_entropy(
    x: Tensor, target: Tensor, reduction: str, ignore_index: int, label_smoothing: float, z_loss: float
) -> Tensor:
    loss = F.cross_entropy(x, target, reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing)
    if not z_loss:
        return loss
    kept = target != ignore_index
    squares = torch.logsumexp(x, 1 if x.dim() > 1 else 0).square().masked_fill(~kept, 0.0)
    if reduction == "mean":
        return loss + z_loss * (squares.sum() / kept.sum())
    return loss + z_loss * _reduced(squares, reduction)


def _reduced(terms: Tensor, reduction: str) -> Tensor:
    known = ("mean", "batchmean", "sum", "none")
    if reduction not in known:
        raise UsageError(
            f"reduction={reduction!r} is not known{nearest(reduction, known)}\nuse one of: {', '.join(known)}"
        )
    if reduction == "batchmean":
        return terms.sum() / terms.shape[0]
    return terms if reduction == "none" else terms.mean() if reduction == "mean" else terms.sum()


_LINEAR = {"narrow": Reference(linear_cross_entropy_narrow, "linear_cross_entropy.narrow")}
ENTRIES = {
    "cross_entropy": Reference(cross_entropy, "cross_entropy"),
    "linear_cross_entropy": Reference(linear_cross_entropy, "linear_cross_entropy", algorithms=_LINEAR),
    "kl_div": Reference(kl_div, "kl_div"),
    "jsd": Reference(jsd, "jsd", algorithms={"shifted": Reference(jsd_shifted, "jsd.shifted")}),
    "focal_loss": Reference(focal_loss, "focal_loss"),
}
