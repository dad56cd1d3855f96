"""Attention: softmax(f(Q K^T scale) + bias + mask) V, with what its fused kernels keep for their backward.

Conventions, in the forward and in the backward:

- A boolean mask is True where the key is visible; a floating mask is added to the scaled scores and hides with -inf.
- `alignment` says which positions meet: "bottom-right" puts the last query at the last key (i at i + Lk - Lq),
  "top-left" the first at the first. `causal`, `window` and `slopes` count from there; they differ where Lq != Lk.
- `causal` hides the keys behind a query's position. `window` (left, right) shows the keys from position - left to
  position + right, both included; -1 is no limit.
- `softcap` c replaces the scaled scores x by c tanh(x / c), before bias and mask.
- `slopes` (ALiBi) adds -slope |position - key| to the scores of a head.
- A query that sees no key has output 0, logsumexp -inf, and no gradient flows through it.
- Fewer key and value heads than query heads are repeated: query head h reads key head h // (Hq / Hk).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.references.attention.scores import Pattern, logsumexp_of, output_of, positions, scores, weights_of


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    alignment: str = "bottom-right",
    window: Sequence[int] | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
) -> Tensor:
    """Return softmax(query key^T scale + mask) value.

    Args:
        query: [..., Hq, Lq, D].
        key: [..., Hk, Lk, D], Hq a multiple of Hk.
        value: [..., Hk, Lk, Dv].
        mask: boolean (True: visible) or floating (added), broadcast to [..., Hq, Lq, Lk].
        causal: hide later keys.
        scale: 1 / sqrt(D) by default.
        alignment: of queries with keys, "bottom-right" or "top-left".
        window: (left, right), how far a query sees.
        softcap: the scores are bent to stay within this.
        slopes: [Hq], of ALiBi.
    """
    return attention_with_logsumexp(query, key, value, mask, causal, scale, alignment, window, softcap, slopes)[0]


def attention_with_logsumexp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    alignment: str = "bottom-right",
    window: Sequence[int] | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output of `attention` and the logsumexp of each query's scores ([..., Hq, Lq], float32 or wider)."""
    place = positions(query, key, alignment)
    found, visible = scores(query, key, Pattern(place, mask, causal, scale, window, softcap, slopes))
    return output_of(weights_of(found, visible), query, value), logsumexp_of(found, visible)


def attention_narrow(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    alignment: str = "bottom-right",
    window: Sequence[int] | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
) -> Tensor:
    """Return `attention` with its weights rounded to the inputs' dtype before they meet `value`.

    Tensor cores take 16-bit operands, so 16-bit kernels that use them for P V round P.
    """
    return attention_narrow_with_logsumexp(query, key, value, mask, causal, scale, alignment, window, softcap, slopes)[
        0
    ]


def attention_narrow_with_logsumexp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    alignment: str = "bottom-right",
    window: Sequence[int] | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output of `attention_narrow` and the logsumexp of each query's scores."""
    place = positions(query, key, alignment)
    found, visible = scores(query, key, Pattern(place, mask, causal, scale, window, softcap, slopes))
    weights = wide(weights_of(found, visible).to(query.dtype))
    return output_of(weights, query, value), logsumexp_of(found, visible)
