"""Other sizes, where they are free."""

from __future__ import annotations

import torch

from kernels_core.battery import Size
from kernels_core.battery.sizes import interesting
from kernels_core.report import Outcome
from tests.core.battery.planted import require_caught, require_left_alone, seeded


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class MasksTheFirstBlockOnly(Double):
    """Wrong beyond one block of 128: its last block reads on as if it were whole."""

    @staticmethod
    def forward(ctx, x):
        tail = x.shape[0] % 128 if x.shape[0] > 128 else 0
        return torch.cat([2 * x[: len(x) - tail], torch.zeros_like(x[len(x) - tail :])])


class WholeBlocksOnly(Double):
    @staticmethod
    def forward(ctx, x):
        if x.shape[0] % 16:
            raise ValueError("the size must be a multiple of 16")
        return 2 * x


def twice(x):
    return 2 * x


def sizes() -> list[Size]:
    return [Size(f"M={n}", lambda n=n: ({"x": seeded(n)}, None)) for n in interesting(16)]


OPTIONS = {"inputs": {"x": seeded(16)}, "reference": twice}


def test_tail_behind_large_blocks_is_looked_at():
    evidence = "M=263: 7 of 263 elements of output violated, "
    require_caught(MasksTheFirstBlockOnly, "sizes", evidence=evidence, sizes=sizes(), **OPTIONS)
    row = require_left_alone(Double, "sizes", sizes=sizes(), **OPTIONS)
    assert row.evidence == "M=1, M=263, M=0, M=17, M=15, M=19"


def test_size_that_would_cost_too_much_is_left_out_and_said():
    large = Size("M=263", lambda: ({"x": torch.zeros(2048, 263)}, None))
    row = require_left_alone(Double, "sizes", sizes=[large], **OPTIONS)
    assert row.evidence == "M=263 left out for cost"


def test_kernel_that_takes_whole_blocks_only_has_refused():
    row = require_left_alone(WholeBlocksOnly, "sizes", outcome=Outcome.REFUSED, sizes=sizes(), **OPTIONS)
    assert row.evidence.startswith("M=1: forward raised ValueError: the size must be a multiple of 16")


def test_sizes_that_are_given_are_not_varied():
    require_left_alone(Double, "sizes", outcome=Outcome.NOT_APPLICABLE, **OPTIONS)


def test_interesting_sizes_are_one_a_large_prime_none_the_neighbours_and_a_prime():
    assert list(interesting(16)) == [1, 263, 0, 17, 15, 19]
    assert list(interesting(1)) == [263, 0, 2, 3]
    assert list(interesting(512)) == [1, 0, 513, 511, 521]
