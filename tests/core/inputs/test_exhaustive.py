"""All values of a format as an input: what is elementwise is checked everywhere, everything else is refused."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

import exactref as er
from kernels_core.check import Check
from kernels_core.formats import FORMATS
from kernels_core.inputs.exhaustive import all_values, failing_values, holds_all_values, require_elementwise
from kernels_core.reference import reference

SMALL = [fmt.dtype for fmt in FORMATS[2:]]


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x.float() * x.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (2 * x.float() * g.float()).to(x.dtype)


class WrongBetween(Square):
    """A fault on (1, 1.25) alone."""

    @staticmethod
    def forward(ctx, x):
        y = x.float() * x.float()
        return torch.where((x.float() > 1) & (x.float() < 1.25), y * 1.5, y).to(x.dtype)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_all_values_are_every_bit_pattern_once_in_order(dtype):
    values = all_values(dtype)
    assert holds_all_values(values)
    assert not holds_all_values(values.flip(0) if dtype.itemsize == 2 else values[:-1])
    assert values.numel() == 2 ** (8 * dtype.itemsize)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_a_square_is_covered_on_all_values_special_ones_included(dtype):
    report = er.check(Square, (all_values(dtype),))
    assert report.row("output").covered == 2 ** (8 * dtype.itemsize)


def test_the_values_that_fail_are_named_as_ranges():
    def plain(x):
        return (x.float() * x.float()).to(x.dtype)

    report = er.check(WrongBetween, (all_values(torch.bfloat16),), reference=plain, wrt=[])
    failure = report.row("output").failure
    assert failure.diagnosis[0] == "violated on 31 of 65536 values: 0x3f81 to 0x3f9f (1.008 to 1.242)"


def test_many_ranges_are_counted():
    failing = torch.zeros(256, dtype=torch.bool)
    failing[::16] = True
    text = failing_values(all_values(torch.float8_e5m2), failing)
    assert text.startswith("violated on 16 of 256 values: 0x00 (0), 0x10 (0.0004883), ")
    assert text.endswith(" and 10 more ranges")


def test_what_is_not_elementwise_or_not_unary_is_refused():
    x = all_values(torch.float8_e5m2)
    require_elementwise(Check(reference(lambda x: torch.relu(x.float()) * 2), {"x": x}), "x")
    with pytest.raises(er.UsageError, match=r"is not elementwise: it calls aten\._softmax"):
        require_elementwise(Check(reference(lambda x: torch.softmax(x.float(), -1)), {"x": x}), "x")
    with pytest.raises(er.UsageError, match=r"is not elementwise: output is \[\]"):
        require_elementwise(Check(reference(lambda x: x.float().sum()), {"x": x}), "x")
    with pytest.raises(er.UsageError, match="takes y as well"):
        require_elementwise(Check(reference(lambda x, y: x.float() + y), {"x": x, "y": torch.ones(256)}), "x")


def test_wider_formats_are_refused():
    with pytest.raises(er.UsageError, match="all values of float32 are too many"):
        all_values(torch.float32)
