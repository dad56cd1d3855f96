"""Indices that stand for nothing: the value of `ignore_index` or `padding_idx`, which no random index is likely to be.

Where kernel and reference share such a parameter by name, every index tensor that nobody gave values for gets its value
in the first and in every third place. What the reference makes of it is what the kernel is held to; a reference that
does not take it leaves nothing to look at.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.other_inputs import look_again
from kernels_core.battery.subject import Subject
from kernels_core.kernel.callee import signature_or_none

STAND_FOR_NOTHING = ("ignore_index", "padding_idx")


def _ignored(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    for name, value in _values(subject).items():
        for tensor, indices in _indices(subject):
            look_again(judgement, f"{tensor} with {name} {value}", {**subject.inputs, tensor: _marked(indices, value)})
    if not (judgement.done or judgement.refusals):
        return not_applicable("no index stands for nothing")
    return judgement.finding(", ".join(judgement.done))


def _values(subject: Subject) -> dict[str, int]:
    """Return the parameters of that kind, given or left at their default."""
    own, other = signature_or_none(subject.function), subject.check.reference.signature
    defaults = {} if own is None else {n: p.default for n, p in own.parameters.items()}
    found = {n: subject.inputs.get(n, defaults.get(n)) for n in STAND_FOR_NOTHING if n in other.parameters}
    return {n: v for n, v in found.items() if isinstance(v, int) and not isinstance(v, bool)}


def _indices(subject: Subject) -> Iterator[tuple[str, torch.Tensor]]:
    free = subject.free_tensors()
    for name, value in subject.inputs.items():
        if isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32) and name in free:
            yield name, value


def _marked(indices: torch.Tensor, value: int) -> torch.Tensor:
    places = torch.arange(indices.numel(), device=indices.device).view(indices.shape)
    return torch.where(places % 3 == 0, value, indices)


ITEMS = (Item("ignored_indices", "indices that are the value of ignore_index or padding_idx", _ignored),)
