"""Convolutions of every kind, and their three gradients."""

import math

import pytest
import torch
from torch.nn import functional as F

from tests.core.rules.checker import check_rule, check_special

Tensor = torch.Tensor


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


CONVOLUTIONS = {
    "1d, strided": (lambda x, w, b: F.conv1d(x, w, b, padding=1, stride=2), [draw(2, 2, 7), draw(3, 2, 3), draw(3)]),
    "1d, grouped": (lambda x, w, b: F.conv1d(x, w, b, groups=2), [draw(2, 4, 5), draw(6, 2, 3), draw(6)]),
    "2d, dilated": (
        lambda x, w, b: F.conv2d(x, w, b, padding=(2, 1), dilation=2, stride=(1, 2)),
        [draw(1, 2, 5, 6), draw(2, 2, 3, 2), draw(2)],
    ),
    "2d, without batch": (lambda x, w: F.conv2d(x, w), [draw(2, 4, 5), draw(3, 2, 3, 2)]),
    "2d, depthwise": (lambda x, w: F.conv2d(x, w, groups=2), [draw(2, 2, 4, 4), draw(4, 1, 3, 2)]),
    "2d, same": (lambda x, w: F.conv2d(x, w, padding="same"), [draw(1, 2, 4, 5), draw(2, 2, 3, 3)]),
    "3d": (lambda x, w, b: F.conv3d(x, w, b), [draw(1, 2, 3, 3, 3), draw(2, 2, 2, 2, 2), draw(2)]),
    "1d, transposed": (
        lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2, padding=1, output_padding=1),
        [draw(2, 2, 5), draw(2, 3, 3), draw(3)],
    ),
    "2d, transposed and grouped": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, groups=2, dilation=2),
        [draw(1, 4, 3, 2), draw(4, 2, 3, 2), draw(4)],
    ),
    "3d, transposed": (lambda x, w: F.conv_transpose3d(x, w), [draw(1, 2, 2, 2, 2), draw(2, 2, 2, 2, 2)]),
    "2d, two in a row": (
        lambda x, w, v: F.conv2d(F.conv2d(x * x, w), v),
        [draw(1, 2, 5, 5), draw(2, 2, 3, 3), draw(1, 2, 2, 2)],
    ),
    "empty batch": (lambda x, w: F.conv2d(x, w), [draw(0, 2, 4, 5), draw(3, 2, 3, 2)]),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_keeps_the_contract(name):
    function, inputs = CONVOLUTIONS[name]
    check_rule(function, inputs, caught=0.3, planted_ulp=256.0)


def test_infinite_data_has_its_class():
    x, w = draw(1, 2, 5, 6), draw(2, 2, 3, 2)
    x[0, 0, 1, 1], x[0, 1, 4, 4], w[0, 0, 0, 0] = math.inf, math.nan, 0.0
    check_special(lambda x, w: F.conv2d(x, w), [x, w], gradient=False, decided=1.0)
    check_special(lambda x, w: F.conv2d(x, w, padding=1), [x, w])
