"""The gradient of an extremum of groups goes to who attains it, where roundings cannot change who that is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference

Tensor = torch.Tensor
PLACES = torch.tensor([1, 1, 0, 0, 2, 1])
PLANE = torch.tensor([[0, 1, 2], [0, 0, 1], [2, 1, 0], [1, 1, 1], [2, 0, 2], [0, 2, 1]])
EXTREMA: dict[str, Callable[[Tensor], Tensor]] = {
    "amax": lambda x: x.new_zeros(3).scatter_reduce(0, PLACES, x[:, 0].exp(), "amax"),
    "amax of an empty group": lambda x: x.new_full((4,), -math.inf).scatter_reduce(0, PLACES, x[:, 0].exp(), "amax"),
    "amin without what was there": lambda x: x.new_zeros(3, 3).scatter_reduce(
        0, PLANE, x.exp(), "amin", include_self=False
    ),
    "along rows": lambda x: x.new_zeros(6, 3).scatter_reduce(-1, PLANE, x * 1.1, "amax", include_self=False),
    "slices": lambda x: x.new_zeros(3, 3).index_reduce(0, PLACES, x.exp(), "amin", include_self=False),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", EXTREMA)
def test_gradient_of_a_scattered_extremum_is_decided(name: str, dtype: torch.dtype) -> None:
    """The comparison of a computed value with itself was a tie, and the gradient unconstrained."""
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    y = EXTREMA[name](x)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    (own,) = torch.autograd.grad(y, x, grad)
    result = reference(EXTREMA[name]).backward(x.detach(), grad)["grad_x"]
    assert result.covers(own).all()
    others = torch.where(own == 0, 0.125, own * (1 + 2.0**-4))
    assert (result.verdict(others) == Element.VIOLATED).all()


def test_gradient_of_a_group_whose_extremum_roundings_choose_stays_open() -> None:
    x, grad = torch.tensor([0.5, 0.5, 0.25, 1.0, 2.0, 0.0]), torch.ones(3)
    result = reference(lambda x: torch.zeros(3).scatter_reduce(0, PLACES, x.exp(), "amax")).backward(x, grad)["grad_x"]
    verdict = result.verdict(torch.zeros(6))
    assert (verdict[:2] == Element.UNCONSTRAINED).all()
    assert verdict[2:5].tolist() == [Element.COVERED, Element.VIOLATED, Element.VIOLATED]


def test_segment_softmax_with_its_maximum_differentiated_is_a_reference() -> None:
    def softmax(x: Tensor) -> Tensor:
        top = x.new_full((3,), -math.inf).scatter_reduce(0, PLACES, x * 2, "amax")
        e = torch.exp(x * 2 - top[PLACES])
        return e / x.new_zeros(3).index_add(0, PLACES, e)[PLACES]

    x = torch.randn(6, generator=torch.Generator().manual_seed(2)).requires_grad_()
    grad = torch.randn(6, generator=torch.Generator().manual_seed(3))
    rows = [torch.softmax(2 * x[PLACES == k], 0) for k in range(3)]
    y = torch.stack([rows[k][int((PLACES[:i] == k).sum())] for i, k in enumerate(PLACES.tolist())])
    (own,) = torch.autograd.grad(y, x, grad)
    result = reference(softmax).backward(x.detach(), grad)["grad_x"]
    assert result.covers(own).all()
    assert (result.verdict(own + 2.0**-8) == Element.VIOLATED).all()
