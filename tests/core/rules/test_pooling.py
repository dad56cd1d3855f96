"""Average and maximum pools, sliding and adaptive, and their gradients."""

import math

import pytest
import torch
from torch.nn import functional as F

from kernels_core.coverage import Element
from kernels_core.reference import Check, reference
from tests.core.rules.checker import check_rule, check_special, evaluate

Tensor = torch.Tensor


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


LINE, PLANE, VOLUME = draw(2, 2, 7), draw(1, 2, 6, 5), draw(1, 2, 4, 3, 4)

AVERAGES = {
    "1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), LINE),
    "2d, ceil mode": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), PLANE),
    "2d, padding not counted": (lambda x: F.avg_pool2d(x, (3, 2), (1, 2), 1, count_include_pad=False), PLANE),
    "2d, own divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), PLANE),
    "2d, without batch": (lambda x: F.avg_pool2d(x * 1.1, 2), PLANE[0]),
    "adaptive 1d": (lambda x: F.adaptive_avg_pool1d(x, 4), LINE),
    "adaptive 2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), PLANE),
    "adaptive 3d": (lambda x: F.adaptive_avg_pool3d(x, (3, 2, 2)), VOLUME),
    "lp": (lambda x: F.lp_pool2d(x, 2.0, 2), PLANE.abs() + 0.5),
}
MAXIMA = {
    "1d": (lambda x: F.max_pool1d(x, 3, 2, 1), LINE),
    "2d, ceil mode": (lambda x: F.max_pool2d(x * x - 1, 3, 2, 1, ceil_mode=True), PLANE),
    "2d, dilated": (lambda x: F.max_pool2d(x, 2, 1, 0, 2), PLANE),
    "3d": (lambda x: F.max_pool3d(x, 2), VOLUME),
    "adaptive 1d": (lambda x: F.adaptive_max_pool1d(x, 4), LINE),
    "adaptive 2d": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), PLANE),
    "adaptive 3d": (lambda x: F.adaptive_max_pool3d(x, (3, 2, 2)), VOLUME),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_average_pool_keeps_the_contract(name):
    function, data = AVERAGES[name]
    check_rule(function, [data], caught=0.5, planted_ulp=512.0)


def test_average_pool_3d_keeps_the_contract():
    check_rule(lambda x: F.avg_pool3d(x, 2, 1, 1), [VOLUME], (torch.float32,), caught=0.5, planted_ulp=512.0)


@pytest.mark.parametrize("name", MAXIMA)
def test_maximum_pool_keeps_the_contract(name):
    function, data = MAXIMA[name]
    check_rule(function, [data], caught=0.8)


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2)


def test_the_gradient_of_tied_maxima_may_go_to_either():
    x = torch.zeros(1, 1, 2, 2)
    x[0, 0, 0] = 1.0
    result = Check(reference(pooled), {"x": x}).both([torch.ones(1, 1, 1, 1)])["grad_x"]
    for place in ((0, 0), (0, 1)):
        grad = torch.zeros_like(x)
        grad[0, 0, place[0], place[1]] = 1.0
        assert bool(result.covers(grad).all())
    assert result.verdict(torch.full_like(x, 2.0))[0, 0, 0, 0] == Element.VIOLATED


def test_the_gradient_of_maxima_closer_than_their_bounds_is_not_decided():
    x = torch.tensor([[[[1.0, 1.0 + 2.0**-23], [0.0, 0.0]]]])
    grads = Check(reference(lambda x: F.max_pool2d(x * 1.1, 2)), {"x": x}).both([torch.ones(1, 1, 1, 1)])["grad_x"]
    other = torch.tensor([[[[1.1, 0.0], [0.0, 0.0]]]])
    assert not bool((grads.verdict(other) == Element.VIOLATED).any())


def test_infinities_have_their_class():
    x = PLANE.clone()
    x[0, 0, 0, 0], x[0, 0, 3, 3], x[0, 1, 2] = math.inf, math.nan, -math.inf
    check_special(lambda x: F.avg_pool2d(x, 2), [x], decided=1.0)
    check_special(lambda x: F.max_pool2d(x, 2), [x], decided=1.0)
    (result,), (actual,) = evaluate(lambda x: F.avg_pool2d(x, 2), [x], gradient=False)
    assert bool((result.verdict(torch.where(actual.isfinite(), math.nan, 1.0)) == Element.VIOLATED).all())
