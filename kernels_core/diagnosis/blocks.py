"""Hypotheses about blocks: a tail of the result that was never written, a tail of an input that was never read."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis
from kernels_core.diagnosis.sums import only, tails
from kernels_core.tracing.arguments import with_tensors

Tensor = torch.Tensor


def _unwritten(evidence: Evidence) -> Iterator[Candidate]:
    """Exactly a tail fails, and it holds zeros or what an input holds there."""
    for dim, size in enumerate(evidence.mid.shape):
        start = _tail_start(evidence.failing, dim)
        if start is None:
            continue
        left = size - start
        place = f"the last {left}" if left > 1 else "the last"
        words = f"tail block not processed: {{count}} at {place} of {size} along dimension {dim} and"
        zero = torch.zeros_like(evidence.mid)
        yield Candidate(f"{words} zero", zero, zero, everywhere=False, known=20.0 * int(evidence.failing.sum()))
        for name, tensor in _same_shape(evidence).items():
            copy = tensor.to(evidence.mid)
            yield Candidate(f"{words} what {name} holds there", copy, torch.zeros_like(copy), everywhere=False)


def _tail_start(failing: Tensor, dim: int) -> int | None:
    """Return where the failing tail begins: every failing element lies at or behind, and all of its slices fail."""
    hit = failing.any(dim=[d for d in range(failing.dim()) if d != dim]) if failing.dim() > 1 else failing
    where = torch.nonzero(hit).reshape(-1)
    start = int(where[0])
    whole = start > 0 and len(where) == failing.shape[dim] - start
    return start if whole else None


def _same_shape(evidence: Evidence) -> dict[str, Tensor]:
    setting = evidence.setting
    if setting is None:
        return {}
    given = {**setting.check.tensors, "the upstream gradient": setting.upstream[0]} if setting.upstream else {}
    return {n: t for n, t in given.items() if t.shape == evidence.mid.shape and t.is_floating_point()}


def _unread(evidence: Evidence) -> Iterator[Candidate]:
    """An incomplete last block of an input takes no part: it is zero for the kernel."""
    setting = evidence.setting
    tensors = {} if setting is None else setting.check.tensors
    for name, tensor in tensors.items():
        for dim, size in enumerate(tensor.shape if tensor.is_floating_point() else ()):
            for end in dict.fromkeys([*tails(size), size - 1] if size > 2 else []):
                left = size - end
                part = f"the last {left} slices" if left > 1 else "the last slice"
                sentence = f"tail block not read: {{count}} those with {part} of {name} along dimension {dim} zero"
                yield from _with_tail_zero(evidence, name, dim, end, sentence)


def _with_tail_zero(evidence: Evidence, name: str, dim: int, end: int, sentence: str) -> Iterator[Candidate]:
    setting = evidence.setting
    if setting is None:
        return
    cut = {name: only(setting.check.tensors[name], dim, slice(0, end))}
    admitted = setting.admits(("tail", name, dim, end), arguments=with_tensors(setting.check.arguments, cut))
    if admitted is not None:
        found = admitted[evidence.result.name]
        yield Candidate(sentence, found.mid, found.bound_or_zero())


UNWRITTEN = (Hypothesis("tail not written", "the last block holds zeros or an input", _unwritten),)
UNREAD = (Hypothesis("tail not read", "the last block of an input is zero", _unread),)
