"""Hypotheses about the upstream gradient: ignored, one number, in another order, one of several lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis, Setting
from kernels_core.eight_bits import equal
from kernels_core.tracing.arguments import cotangent_name

Tensor = torch.Tensor


def _candidates(evidence: Evidence, sentence: str, key: str, replaced: list[Tensor]) -> Iterator[Candidate]:
    setting = evidence.setting
    if setting is None or all(equal(a, b) for a, b in zip(replaced, setting.upstream, strict=True)):
        return
    admitted = setting.admits(("upstream", key), upstream=replaced)
    if admitted is not None:
        found = admitted[evidence.result.name]
        yield Candidate(sentence, found.mid, found.bound_or_zero())


def _given(evidence: Evidence) -> tuple[Setting, str, list[Tensor]] | None:
    setting = evidence.setting
    if setting is None or not evidence.gradient or not setting.upstream:
        return None
    names = [cotangent_name(name) for name in setting.check.cotangents]
    return setting, " and ".join(names), list(setting.upstream)


def _ignored(evidence: Evidence) -> Iterator[Candidate]:
    if given := _given(evidence):
        _, name, upstream = given
        ones = [torch.ones_like(g) for g in upstream]
        yield from _candidates(evidence, f"{name} ignored: {{count}} those of an upstream gradient of ones", "1", ones)


def _passed_through(evidence: Evidence) -> Iterator[Candidate]:
    """The upstream gradient comes out as it went in, where the derivative is another."""
    if not (given := _given(evidence)):
        return
    setting, _, _ = given
    for name, grad in zip(setting.check.cotangents, setting.upstream, strict=True):
        if grad.shape == evidence.mid.shape:
            value = grad.to(evidence.mid)
            yield Candidate(f"derivative left out: {{count}} {cotangent_name(name)} as it came in",
                            value, torch.zeros_like(value), known=torch.inf)  # fmt: skip


def _one_number(evidence: Evidence) -> Iterator[Candidate]:
    if not (given := _given(evidence)):
        return
    _, name, upstream = given
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "first element": lambda g: g.reshape(-1)[:1].double().sum().to(g.dtype).expand(g.shape),
        "sum": lambda g: g.double().sum().to(g.dtype).expand(g.shape),
        "mean": lambda g: g.double().mean().to(g.dtype).expand(g.shape),
    }
    for way, read in ways.items():
        sentence = f"{name} read as one number: {{count}} those of its {way} everywhere"
        yield from _candidates(evidence, sentence, way, [read(g) for g in upstream])


def _other_order(evidence: Evidence) -> Iterator[Candidate]:
    """The memory of a strided upstream gradient read row by row; or a square one read column by column."""
    if not (given := _given(evidence)):
        return
    _, name, upstream = given
    sentence = f"{name} read as if it were contiguous: {{count}} those of its memory in order"
    yield from _candidates(evidence, sentence, "memory", [in_memory_order(g) for g in upstream])
    if all(g.dim() >= 2 for g in upstream):
        sentence = f"{name} read column by column: {{count}} those of its elements in that order"
        yield from _candidates(evidence, sentence, "columns", [g.mT.reshape(g.shape) for g in upstream])


def in_memory_order(tensor: Tensor) -> Tensor:
    """Return what a kernel reads that takes the tensor's memory for contiguous; the tensor where that is too short."""
    length = tensor.untyped_storage().nbytes() // tensor.element_size()
    if tensor.storage_offset() + tensor.numel() > length:
        return tensor
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides, tensor.storage_offset())


def _one_lost(evidence: Evidence) -> Iterator[Candidate]:
    if not (given := _given(evidence)) or len(given[2]) < 2:
        return
    setting, _, upstream = given
    for place, name in enumerate(setting.check.cotangents):
        lost = [torch.zeros_like(g) if k == place else g for k, g in enumerate(upstream)]
        sentence = f"{cotangent_name(name)} ignored: {{count}} those without it"
        yield from _candidates(evidence, sentence, f"without {name}", lost)


HYPOTHESES = (
    Hypothesis("upstream ignored", "the upstream gradient is 1 everywhere", _ignored),
    Hypothesis("derivative left out", "the upstream gradient itself", _passed_through),
    Hypothesis("upstream as one number", "its first element, sum or mean everywhere", _one_number),
    Hypothesis("upstream in another order", "its memory read as contiguous, or by columns", _other_order),
    Hypothesis("one upstream lost", "the upstream gradient of one output is 0", _one_lost),
)
