"""Hypotheses about what a gradient sums over: one slice only, a slice left out, a tail block left out.

A gradient is linear in the upstream gradient, so that the part which some slices contribute is the gradient of the
upstream gradient that is zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis

Tensor = torch.Tensor
_BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def _kept(evidence: Evidence, dim: int, part: slice, sentence: str) -> Iterator[Candidate]:
    setting = evidence.setting
    if setting is None:
        return
    upstream = [only(g, dim, part) if dim < g.dim() else g for g in setting.upstream]
    admitted = setting.admits(("kept", dim, part.start, part.stop), upstream=upstream)
    if admitted is not None:
        found = admitted[evidence.result.name]
        yield Candidate(sentence, found.mid, found.bound_or_zero())


def only(tensor: Tensor, dim: int, part: slice) -> Tensor:
    """Return the tensor with zeros outside of a part of one dimension."""
    kept = torch.zeros_like(tensor)
    index = (slice(None),) * dim + (part,)
    kept[index] = tensor[index]
    return kept


def _sizes(evidence: Evidence) -> list[int]:
    """Return the sizes of the first output's dimensions: what a gradient of another shape sums over."""
    if evidence.setting is None or not evidence.gradient or not evidence.setting.upstream:
        return []
    return list(evidence.setting.upstream[0].shape)


def _one_slice(evidence: Evidence) -> Iterator[Candidate]:
    for dim, size in enumerate(_sizes(evidence)):
        if size > 1:
            for part, word in ((slice(0, 1), "first"), (slice(size - 1, size), "last")):
                sentence = f"a sum is missing: {{count}} what the {word} slice along dimension {dim} contributes"
                yield from _kept(evidence, dim, part, sentence)


def _slice_left_out(evidence: Evidence) -> Iterator[Candidate]:
    for dim, size in enumerate(_sizes(evidence)):
        if size > 2:
            for part, word in ((slice(0, size - 1), "last"), (slice(1, size), "first")):
                sentence = f"off by one: {{count}} the sum without the {word} slice along dimension {dim}"
                yield from _kept(evidence, dim, part, sentence)


def _tail_left_out(evidence: Evidence) -> Iterator[Candidate]:
    for dim, size in enumerate(_sizes(evidence)):
        for end in tails(size):
            left = size - end
            sentence = f"tail block not summed: {{count}} the sum without the last {left} slices along dimension {dim}"
            yield from _kept(evidence, dim, slice(0, end), sentence)


def tails(size: int) -> list[int]:
    """Return where a last, incomplete block may begin (a block of one is left to another hypothesis)."""
    ends = {size // block * block for block in _BLOCKS if size % block}
    return sorted((end for end in ends if 0 < end < size - 1), reverse=True)


HYPOTHESES = (
    Hypothesis("missing reduction", "the contribution of one slice alone", _one_slice),
    Hypothesis("slice left out", "the sum without the first or the last slice", _slice_left_out),
    Hypothesis("tail of a sum", "the sum without an incomplete last block", _tail_left_out),
)
