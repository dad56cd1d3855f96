"""The hypothesis that padded lanes take part: rows are filled with zeros to a power of two."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis
from kernels_core.diagnosis.rewriting import Rewriting
from kernels_core.reference import Reference
from kernels_core.tracing.arguments import signature_of

Tensor = torch.Tensor


class _MeansOf(Rewriting):
    """Means over the padded rows still divide by the number of real elements."""

    def __init__(self, size: int, lanes: int) -> None:
        super().__init__()
        self.size, self.lanes, self.used = size, lanes, True

    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Scale means over the last dimension."""
        if name != "mean" or args[0].dim() == 0 or args[0].shape[-1] != self.lanes:
            return NotImplemented
        result = func(*args, **kwargs)
        over_last = result.dim() < args[0].dim() or result.shape[-1] == 1
        return result * (self.lanes / self.size) if over_last else result


def _padded(evidence: Evidence) -> Iterator[Candidate]:
    setting = evidence.setting
    tensors = {} if setting is None else setting.check.tensors
    for size in sorted({t.shape[-1] for t in tensors.values() if t.dim() and t.is_floating_point()}):
        lanes = 1 << (size - 1).bit_length()
        if lanes == size or setting is None:
            continue
        words = f"padded lanes included: {{count}} those of rows filled with zeros from {size} to {lanes}"
        for means, word in ((size, ""), (lanes, ", which means count")):
            reference = _with_lanes(setting.check.reference, size, lanes, means)
            admitted = setting.admits(("lanes", size, means), reference=reference)
            if admitted is not None:
                found = admitted[evidence.result.name]
                yield Candidate(words + word, found.mid, found.bound_or_zero())


def _with_lanes(reference: Reference, size: int, lanes: int, means: int) -> Reference:
    function = reference.function

    def call(*args: Any, **kwargs: Any) -> Any:
        with _MeansOf(means, lanes):
            result = function(*(_filled(a, size, lanes) for a in args), **kwargs)
        return _each(result, lambda t: t[..., :size] if t.dim() and t.shape[-1] == lanes else t)

    call.__signature__ = signature_of(function)  # type: ignore[attr-defined]
    return dataclasses.replace(reference, function=call, declared=None, surrogate=False)


def _filled(value: Any, size: int, lanes: int) -> Any:
    fits = isinstance(value, Tensor) and value.is_floating_point() and value.dim() and value.shape[-1] == size
    return F.pad(value, (0, lanes - size)) if fits else value


def _each(result: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(result, Tensor):
        return function(result)
    return type(result)(_each(part, function) for part in result) if isinstance(result, (tuple, list)) else result


HYPOTHESES = (Hypothesis("padded lanes", "rows filled with zeros to the next power of two", _padded),)
