"""Hypotheses about where the values stand: transposed, reversed, shifted by one, or another tensor's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis
from kernels_core.enclosure import Enclosure

Tensor = torch.Tensor
_RANK = 4  # permutations of more dimensions are not tried


def _moved(evidence: Evidence, sentence: str, move: object, source: Enclosure | None = None) -> Candidate:
    source = source or evidence.result.enclosure
    mid, bound = source.mid, source.bound_or_zero().expand(source.shape)
    return Candidate(sentence, move(mid), move(bound))  # type: ignore[operator]


def _transposed(evidence: Evidence) -> Iterator[Candidate]:
    shape, rank = evidence.mid.shape, evidence.mid.dim()
    if rank < 2:
        return
    for order in itertools.permutations(range(rank)) if rank <= _RANK else ():
        if order != tuple(range(rank)) and all(shape[d] == shape[o] for d, o in enumerate(order)):
            yield _moved(evidence, f"transposed: {{count}} in their interval once {_swap(order)}",
                         lambda t, order=order: t.permute(order))  # fmt: skip
    if min(shape[-2:]) > 1:
        yield _moved(evidence, "{count} those of the transposed matrix, written row by row",
                     lambda t: t.mT.reshape(shape))  # fmt: skip


def _swap(order: tuple[int, ...]) -> str:
    moved = [d for d, o in enumerate(order) if d != o]
    if len(moved) == 2:
        names = "the last two dimensions" if moved == [len(order) - 2, len(order) - 1] else f"dimensions {moved}"
        return f"{names} are swapped"
    return f"the dimensions are permuted to {list(order)}"


def _reversed(evidence: Evidence) -> Iterator[Candidate]:
    for dim, size in enumerate(evidence.mid.shape):
        if size > 1:
            yield _moved(evidence, f"{{count}} in reversed order along dimension {dim}", lambda t, d=dim: t.flip(d))


def _shifted(evidence: Evidence) -> Iterator[Candidate]:
    for dim, size in enumerate(evidence.mid.shape):
        if size < 3:
            continue
        for step, word in ((1, "before"), (-1, "after")):
            for border, how in (("cyclic", ", cyclically"), ("zero", ", with zeros at the border"),
                                ("edge", ", the border repeated")):  # fmt: skip
                sentence = f"shifted by one: {{count}} those of the element {word} along dimension {dim}{how}"
                yield _moved(evidence, sentence, lambda t, a=(dim, step, border): shifted(t, *a))


def shifted(tensor: Tensor, dim: int, step: int, border: str) -> Tensor:
    """Return the tensor moved by one place; the free border is wrapped round, zero, or repeated."""
    moved = tensor.roll(step, dim)
    if border == "cyclic":
        return moved
    moved = moved.clone()
    free = 0 if step > 0 else -1
    moved.select(dim, free).copy_(tensor.select(dim, free) if border == "edge" else tensor.new_zeros(()))
    return moved


def _another_tensor(evidence: Evidence) -> Iterator[Candidate]:
    results = {} if evidence.setting is None else evidence.setting.results
    for name, other in results.items():
        if name == evidence.result.name or not other.enclosure.floating:
            continue
        if other.meta.shape == evidence.result.meta.shape:
            yield _moved(evidence, f"swapped: {{count}} those of {name}", lambda t: t, other.enclosure)
        elif other.enclosure.mid.dim() >= 2 and other.enclosure.mid.mT.shape == evidence.mid.shape:
            yield _moved(evidence, f"swapped: {{count}} those of {name} transposed", lambda t: t.mT, other.enclosure)


HYPOTHESES = (
    Hypothesis("transposed", "dimensions permuted, or written in the order of the transposed tensor", _transposed),
    Hypothesis("swapped", "another output or gradient of the same shape", _another_tensor),
    Hypothesis("shift by one", "moved by one place along a dimension", _shifted),
    Hypothesis("reversed", "flipped along a dimension", _reversed),
)
