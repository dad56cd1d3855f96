"""Losses whose gradient is a kernel of its own, in terms of operations that have rules.

The gradients are written as PyTorch's kernels compute them (ATen/native/LossMultiMargin.cpp, LossMultiLabelMargin.cpp,
LossCTC.cpp). That of the CTC loss is exp(log_probs) minus the posterior, which is the derivative of the loss only up to
what log_softmax before it takes away: PyTorch defines it so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
aten = torch.ops.aten
_MEAN = 1  # the code of the reduction "mean" in ATen


def _spread(grad: Tensor, rows: int) -> Tensor:
    """Return the upstream gradient with one row for each sample."""
    return grad.reshape(-1, 1) if grad.numel() == rows else grad.reshape(1, 1)


def _multi_margin_backward(
    grad: Tensor, input: Tensor, target: Tensor, p: Any, margin: Any, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    x, target = torch.atleast_2d(input), torch.atleast_1d(target).unsqueeze(1)
    scale = 1 / max(1, x.shape[1] * (x.shape[0] if reduction == _MEAN else 1))
    z = margin - x.gather(1, target) + x
    each = torch.full_like(z, scale) if p == 1 else 2 * scale * z
    if weight is not None:
        each = each * weight[target]
    chosen = torch.arange(x.shape[1], device=x.device) == target
    each = torch.where((z > 0) & ~chosen, each, 0.0)
    value = torch.where(chosen, -each.sum(1, keepdim=True), each)
    return (value * _spread(grad, x.shape[0])).reshape(input.shape)


def _multilabel_terms(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the labels, 1 - x_label + x_class (samples, labels, classes), which count, and what is a target.

    The labels of a sample end at the first -1. PyTorch's own decomposition adds terms for those after it.
    """
    listed = torch.cumsum((target == -1).to(torch.int64), 1) == 0
    label = torch.where(listed, target, 0)
    z = 1 - x.gather(1, label).unsqueeze(2) + x.unsqueeze(1)
    classes = torch.arange(x.shape[1], device=x.device)
    mine = ((label.unsqueeze(2) == classes) & listed.unsqueeze(2)).any(1)
    return label, z, listed.unsqueeze(2) & ~mine.unsqueeze(1), mine


def _multilabel_margin(input: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    _, z, counts, mine = _multilabel_terms(torch.atleast_2d(input), torch.atleast_2d(target))
    loss = torch.where(counts, z.clamp_min(0), 0.0).sum((1, 2)) / z.shape[2]
    if reduction:
        loss = loss.mean() if reduction == _MEAN else loss.sum()
    elif input.dim() < 2:
        loss = loss.squeeze(0)
    return loss, mine.to(input.dtype).reshape(target.shape)


def _multilabel_margin_backward(
    grad: Tensor, input: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    x = torch.atleast_2d(input)
    scale = 1 / max(1, x.shape[1] * (x.shape[0] if reduction == _MEAN else 1))
    label, z, counts, _ = _multilabel_terms(x, torch.atleast_2d(target))
    each = torch.where((z > 0) & counts, torch.full_like(z, scale), 0.0)
    value = each.sum(1).scatter_add(1, label, -each.sum(2))
    return (value * _spread(grad, x.shape[0])).reshape(input.shape)


class _Paths:
    """The lattice of one batch: blank, label, blank, ..., and which of its states belong to each sample."""

    def __init__(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int) -> None:
        self.steps, samples, self.classes = log_probs.shape
        device = log_probs.device
        self.length, count = (
            v.to(torch.int64) if isinstance(v, Tensor) else torch.tensor(v, dtype=torch.int64, device=device)
            for v in (input_lengths, target_lengths)
        )
        if targets.dim() == 1:  # one label after the other
            widest = max(target_lengths, default=0) if not isinstance(target_lengths, Tensor) else targets.shape[0]
            place = (torch.cumsum(count, 0) - count).unsqueeze(1) + torch.arange(widest, device=device)
            targets = (
                targets[place.clamp(max=max(0, targets.shape[0] - 1))] if widest else targets.new_zeros(samples, 0)
            )
        width = targets.shape[1]
        blanks = torch.full((samples, width, 1), blank, dtype=torch.int64, device=device)
        listed = torch.arange(width, device=device) < count.unsqueeze(1)
        labels = torch.where(listed, targets.to(torch.int64), blank)
        self.labels = torch.cat(
            (torch.cat((blanks, labels.unsqueeze(2)), 2).flatten(1), blanks.new_full((samples, 1), blank)), 1
        )
        self.state = torch.arange(2 * width + 1, device=device)
        self.last = 2 * count.unsqueeze(1)
        self.real = self.state <= self.last
        differs = self.labels[:, 2:] != self.labels[:, :-2]
        no = torch.zeros((samples, 2), dtype=torch.bool, device=device)
        self.skips = torch.cat((no, differs), 1)[:, : 2 * width + 1]  # a state may be entered from two before it
        self.leaves = torch.cat((differs, no), 1)[:, : 2 * width + 1]  # and left to two after it
        self.emitted = log_probs.gather(2, self.labels.expand(self.steps, -1, -1))

    def start(self, allowed: Tensor, step: int) -> Tensor:
        return torch.where(allowed & self.real, self.emitted[step], -torch.inf)

    def advance(self, before: Tensor, step: int, backwards: bool) -> Tensor:
        """Return log(sum over the states that lead here) + log p; `backwards` for those that follow.

        States beyond the last real one never reach a real one forwards, and stay -inf backwards.
        """
        width, none = before.shape[1], before.new_full((before.shape[0], 2), -torch.inf)
        beside = torch.cat((before, none) if backwards else (none, before), 1)
        near = beside.narrow(1, 1, width)
        far = torch.where(
            self.leaves if backwards else self.skips, beside.narrow(1, 2 if backwards else 0, width), -torch.inf
        )
        return torch.logsumexp(torch.stack((before, near, far)), 0) + self.emitted[step]


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    paths = _Paths(log_probs, targets, input_lengths, target_lengths, blank)
    alphas = [paths.start(paths.state < 2, 0)] if paths.steps else []
    for step in range(1, paths.steps):
        alphas.append(paths.advance(alphas[-1], step, False))
    alpha = torch.stack(alphas, 1)
    final = alpha.gather(1, (paths.length - 1).clamp(min=0).reshape(-1, 1, 1).expand(-1, 1, alpha.shape[2])).squeeze(1)
    ends = torch.where((paths.state == paths.last) | (paths.state == paths.last - 1), final, -torch.inf)
    loss = -torch.logsumexp(ends, 1)
    none = torch.where(paths.last.squeeze(1) == 0, 0.0, torch.inf).to(loss.dtype)
    return torch.where(paths.length == 0, none, loss), alpha


def _ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    loss: Tensor,
    alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    paths = _Paths(log_probs, targets, input_lengths, target_lengths, blank)
    ends = (paths.state == paths.last) | (paths.state == paths.last - 1)
    betas: list[Tensor] = []
    for step in reversed(range(paths.steps)):
        begun = paths.start(ends, step)
        if betas:
            last = (paths.length == step + 1).unsqueeze(1)
            begun = torch.where(last, begun, paths.advance(betas[-1], step, True))
        betas.append(begun)
    both = alpha + torch.stack(betas[::-1], 1)  # (samples, steps, states)
    mine = paths.labels.unsqueeze(2) == torch.arange(paths.classes, device=alpha.device)
    mine = mine & paths.real.unsqueeze(2)
    collected = torch.logsumexp(torch.where(mine.unsqueeze(1), both.unsqueeze(3), -torch.inf), 2).transpose(0, 1)
    value = (log_probs.exp() - (collected + loss.reshape(-1, 1) - log_probs).exp()) * grad.reshape(-1, 1)
    live = torch.arange(paths.steps, device=alpha.device).reshape(-1, 1, 1) < paths.length.reshape(-1, 1)
    if zero_infinity:
        live = live & (loss != torch.inf).reshape(-1, 1)
    return torch.where(live, value, 0.0)


def _of_nothing(gradient: Any) -> Callable[..., Tensor]:
    """Return PyTorch's decomposition, which divides by the number of elements, without elements the empty gradient."""
    decomposed = torch._decomp.decomposition_table[gradient]

    def backward(grad: Tensor, input: Tensor, target: Tensor, *settings: Any) -> Tensor:
        found: Tensor = decomposed(grad, input, target, *settings) if input.numel() else input - target
        return found

    return backward


def _with_tensors_of_lengths(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the CTC loss with its lengths as tensors: of a list, PyTorch's mean makes one that no trace can follow."""

    @functools.wraps(loss)
    def of_tensors(
        log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, *settings: Any, **named: Any
    ) -> Tensor:
        lengths = (torch.as_tensor(n, dtype=torch.int64) for n in (input_lengths, target_lengths))
        return loss(log_probs, targets, *lengths, *settings, **named)

    return of_tensors


CTC: Mapping[Any, Callable[..., Tensor]] = {
    function: _with_tensors_of_lengths(function) for function in (F.ctc_loss, torch.ctc_loss)
}
LOSSES: Mapping[Any, Callable[..., Any]] = {
    aten.mse_loss_backward.default: _of_nothing(aten.mse_loss_backward.default),
    aten.smooth_l1_loss_backward.default: _of_nothing(aten.smooth_l1_loss_backward.default),
    aten.huber_loss_backward.default: _of_nothing(aten.huber_loss_backward.default),
    aten.multi_margin_loss_backward.default: _multi_margin_backward,
    aten.multilabel_margin_loss_forward.default: _multilabel_margin,
    aten.multilabel_margin_loss_backward.default: _multilabel_margin_backward,
    aten._ctc_loss.default: _ctc_loss,
    aten._ctc_loss.Tensor: _ctc_loss,
    aten._ctc_loss_backward.default: _ctc_loss_backward,
    aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
}
