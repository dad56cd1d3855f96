"""Lengths, counts and places that integer inputs give are read while tracing; what roundings decide is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import exactref as er

ENDS = torch.tensor([0, 3, 4, 4, 9])
GROUPS = torch.tensor([1, 0, 1, 2, 0, 0, 2, 1, 1])
X = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))


def _ragged(x: torch.Tensor, ends: Any) -> torch.Tensor:
    return torch.cat([torch.softmax(x[a:b], 0) for a, b in itertools.pairwise(ends)])


def _routed(x: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for expert in range(3):
        (rows,) = torch.where(groups == expert)
        out = out.index_add(0, rows, x[rows] * (expert + 2))
    return out


READS: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor]] = {
    "tolist": (lambda x, ends: _ragged(x, ends.tolist()), ENDS),
    "tolist of flags": (lambda x, flags: x * (2 if flags.tolist()[0] else 3), ENDS > 2),
    "numpy": (lambda x, ends: _ragged(x, ends.numpy()), ENDS),
    "numpy of a function": (lambda x, ends: _ragged(x, np.asarray(ends)), ENDS.int()),
    "split": (lambda x, ends: torch.stack([p.sum(0) for p in x.split((ends[1:] - ends[:-1]).tolist())]), ENDS),
    "tensor_split": (lambda x, ends: torch.stack([p.sum(0) for p in x.tensor_split(ends[1:-1])]), ENDS),
    "where": (_routed, GROUPS),
    "where of an order": (lambda x, _: x[torch.nonzero(x.exp().argmax(-1) == 0)[:, 0]] * 2, ENDS),
    "bincount": (lambda x, groups: x / torch.bincount(groups, minlength=4)[groups].unsqueeze(1), GROUPS),
    "bincount of weights": (lambda x, groups: torch.bincount(groups, x.exp()[:, 0].detach()) * x[:3, 1], GROUPS),
    "repeat_interleave": (lambda x, groups: x.repeat_interleave(groups, 0) * 2, GROUPS),
    "repeat_interleave to a size": (lambda x, n: x.repeat_interleave(n, 0, output_size=8) * 2, GROUPS),
}


@pytest.mark.parametrize("name", READS)
def test_lengths_in_a_tensor_make_a_reference(name: str) -> None:
    function, given = READS[name]
    assert er.check(function, [X, given], reference=function).verdict == er.Verdict.COVERED
    report = er.check(lambda x, n: function(x, n) * 1.001, [X, given], reference=function)
    assert report.verdict == er.Verdict.VIOLATED


def _left(x: torch.Tensor) -> torch.Tensor:
    return x * 3 - x - x - x


@pytest.mark.parametrize("name", ["mask", "masked_select", "where"])
def test_a_number_of_elements_that_roundings_decide_is_refused(name: str) -> None:
    """Such a mask ended in PyTorch's own message on sizes that do not match."""

    def reference(x: torch.Tensor) -> torch.Tensor:
        mask = _left(x[:, 0] * 0.3) > 0
        if name == "mask":
            return x[mask] * 2
        return x[:, 1].masked_select(mask) * 2 if name == "masked_select" else x[torch.where(mask)[0]] * 2

    with pytest.raises(er.TraceError, match=r"(?s)decided by roundings\ngive the mask as an input"):
        er.check(reference, [X], reference=reference)


def test_elements_that_roundings_choose_are_unconstrained() -> None:
    x = torch.tensor([1.0, 2.0])
    for choose in (lambda m, x: x[m], lambda m, x: x.masked_select(m), lambda m, x: x[torch.where(m)[0]]):

        def reference(x: torch.Tensor, choose: Callable[..., torch.Tensor] = choose) -> torch.Tensor:
            third = x / 3
            return choose(torch.stack([third[0] + third[0] > third[1], third[0] * 3 >= 0.5]), x)

        assert er.check(reference, [x], reference=reference).verdict == er.Verdict.UNCONSTRAINED


def test_complex_values_do_not_leave_a_reference() -> None:
    def reference(z: torch.Tensor) -> torch.Tensor:
        return z * (z + z).tolist()[0]

    with pytest.raises(er.TraceError, match="takes a floating value out of PyTorch"):
        er.check(reference, [torch.randn(2, dtype=torch.complex64)], reference=reference)
