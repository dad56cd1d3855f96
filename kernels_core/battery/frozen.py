"""Inputs that need no gradient: a Function is told by `needs_input_grad`, and each subset is a path of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch

from kernels_core.battery.item import Finding, Item
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.subject import Subject

MOST = 16  # subsets that are run


def subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every proper subset: each input alone, each left out, none, then those between."""
    sizes = [1, len(names) - 1, 0, *range(2, len(names) - 1)]
    for size in dict.fromkeys(n for n in sizes if 0 <= n < len(names)):
        yield from itertools.combinations(names, size)


def _frozen_inputs(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    for wrt in itertools.islice(subsets(subject.wrt), MOST):
        label = f"only {', '.join(wrt)} differentiated" if wrt else "nothing differentiated"
        with judgement.trying(label):
            judgement.look(label, subject.run(subject.leaves(wrt)))
    with judgement.trying("under no_grad"), torch.no_grad():
        judgement.look("under no_grad", subject.forward(subject.leaves()))
    total = 2 ** len(subject.wrt) - 1
    cut = f", {total - MOST} left out for cost" if total > MOST else ""
    return judgement.finding(f"{min(total, MOST)} of {total} subsets of differentiated inputs{cut}, and no_grad")


ITEMS = (Item("frozen_inputs", "every subset of the inputs alone needs a gradient (needs_input_grad)", _frozen_inputs),)
