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


class WholeBlocks(Double):
    @staticmethod
    def forward(ctx, x):
        done = x.shape[0] // 16 * 16
        return torch.cat([2 * x[:done], torch.zeros_like(x[done:])])


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


def test_tail_that_is_left_out_is_caught():
    evidence = "M=1: 1 of 1 elements of output violated, the only element (and 3 more)"
    require_caught(WholeBlocks, "sizes", evidence=evidence, sizes=sizes(), **OPTIONS)
    row = require_left_alone(Double, "sizes", sizes=sizes(), **OPTIONS)
    assert row.evidence == "M=1, M=0, M=17, M=15, M=19"


def test_kernel_that_takes_whole_blocks_only_has_refused():
    row = require_left_alone(WholeBlocksOnly, "sizes", outcome=Outcome.REFUSED, sizes=sizes(), **OPTIONS)
    assert row.evidence.startswith("M=1: forward raised ValueError: the size must be a multiple of 16")


def test_sizes_that_are_given_are_not_varied():
    require_left_alone(WholeBlocks, "sizes", outcome=Outcome.NOT_APPLICABLE, **OPTIONS)


def test_interesting_sizes_are_none_one_the_neighbours_and_a_prime():
    assert list(interesting(16)) == [1, 0, 17, 15, 19]
    assert list(interesting(1)) == [0, 2, 3]
