"""Attention of sequences that lie one behind the other in one tensor, each seeing only itself.

Conventions are those of `attention`; positions are aligned at the end of each sequence ("bottom-right"). A token before
the first offset or from the last one on belongs to no sequence: it sees nothing and its output is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels_core.references.attention.flash import gradients
from kernels_core.references.attention.scores import Pattern, logsumexp_of, output_of, scores, weights_of


def attention_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: Sequence[int] | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
) -> Tensor:
    """Return the attention of each sequence, [Tq, Hq, Dv].

    Args:
        query: [Tq, Hq, D], all sequences one behind the other.
        key: [Tk, Hk, D].
        value: [Tk, Hk, Dv].
        query_offsets: [S + 1], int: sequence s has the queries from offset s up to offset s + 1.
        key_offsets: [S + 1], likewise for keys.
        causal: hide later keys.
        scale: 1 / sqrt(D) by default.
        window: (left, right), how far a query sees.
        softcap: the scores are bent to stay within this.
        slopes: [Hq], of ALiBi.
    """
    return attention_varlen_with_logsumexp(
        query, key, value, query_offsets, key_offsets, causal, scale, window, softcap, slopes
    )[0]


def attention_varlen_with_logsumexp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: Sequence[int] | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output of `attention_varlen` and the logsumexp of each query's scores, [Hq, Tq]."""
    pattern = _pattern(query, key, query_offsets, key_offsets, causal, scale, window, softcap, slopes)
    q, k, v = (t.transpose(0, 1) for t in (query, key, value))
    found, visible = scores(q, k, pattern)
    return output_of(weights_of(found, visible), q, v).transpose(0, 1), logsumexp_of(found, visible)


def flash_backward_varlen(
    inputs: Sequence[Any], outputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the gradients of query, key and value (and of slopes) from the stored output, as `flash_backward` does."""
    query, key, value, *more = inputs
    pattern = _pattern(query, key, *more)
    kept = (outputs[0].transpose(0, 1), *outputs[1:])
    upstream = (grads[0].transpose(0, 1), *grads[1:])
    by_head = [t.transpose(0, 1) for t in (query, key, value)]
    found = gradients(by_head, pattern, kept, upstream, narrow=False)
    return (*(g.transpose(0, 1) for g in found[:3]), *found[3:])


def _pattern(query: Tensor, key: Tensor, query_offsets: Tensor, key_offsets: Tensor, *more: Any) -> Pattern:
    """Return the pattern whose mask shows a query only the keys of its own sequence."""
    sequence_q, place_q = _places(query, query_offsets)
    sequence_k, place_k = _places(key, key_offsets)
    last = query_offsets.shape[0] - 2
    own = (sequence_q.unsqueeze(-1) == sequence_k) & (sequence_k >= 0) & (sequence_k <= last)
    lengths = (key_offsets.diff() - query_offsets.diff())[sequence_q.clamp(0, last)]
    return Pattern(place_k - (place_q + lengths).unsqueeze(-1), own, *more)


def _places(t: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sequence of each token, and its place in it."""
    tokens = torch.arange(t.shape[0], device=t.device)
    sequence = torch.searchsorted(offsets.to(torch.int64), tokens, right=True) - 1
    return sequence, tokens - offsets[sequence.clamp(0, offsets.shape[0] - 1)]
