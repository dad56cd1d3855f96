"""Decompositions of our own: PyTorch's eager kernels are covered, forwards and backwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels_core.coverage import Element
from kernels_core.errors import TraceError
from kernels_core.reference import reference
from kernels_core.verify import verify
from tests.core.rules.checker import check_rule

GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(1, 2, 5, 3, generator=GENERATOR)
FLOAT32 = (torch.float32,)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 3), (15, 4), (2, 9)])
@pytest.mark.parametrize("align", [False, True])
def test_interpolation_covers_pytorch_also_where_a_position_is_an_integer(
    mode: str, size: tuple[int, int], align: bool
) -> None:
    corners = align if mode.startswith("bi") else None
    check_rule(lambda x: F.interpolate(x, size, mode=mode, align_corners=corners), [X], FLOAT32, caught=0.0)


def test_interpolation_by_a_factor_uses_the_factor() -> None:
    check_rule(
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=False),
        [X],
        FLOAT32,
        caught=0.5,
    )


def test_an_interpolation_that_takes_the_wrong_neighbour_is_violated() -> None:
    result = reference(lambda x: F.interpolate(x, (15, 4), mode="bilinear"))(X)
    assert (
        float(
            (result.verdict(F.interpolate(X.roll(1, 2), (15, 4), mode="bilinear")) == Element.VIOLATED).double().mean()
        )
        > 0.99
    )


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances_cover_pytorch(p: float) -> None:
    check_rule(lambda x, y: torch.cdist(x, y, p), [X[0, 0], X[0, 1]], FLOAT32, caught=0.0)
    check_rule(lambda x: F.pdist(x, p), [X[0, 0]], FLOAT32, caught=0.0)


@pytest.mark.parametrize("function", [F.hardshrink, F.softshrink])
def test_shrinkages_cover_pytorch(function: Any) -> None:
    check_rule(lambda x: function(x), [X])


def test_bilinear_products_cover_pytorch() -> None:
    weight = torch.randn(2, 3, 3, generator=GENERATOR)
    check_rule(lambda x, y, w: F.bilinear(x, y, w), [X[0, 0], X[0, 1], weight], FLOAT32, caught=0.0)


@pytest.mark.parametrize("dim", [0, 1])
def test_the_gradient_of_renorm_may_be_computed_in_float32(dim: int) -> None:
    for seed in range(10):  # PyTorch's own is in float64
        x, grad = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(seed)).unbind()
        norm = x.norm(dim=1 - dim, keepdim=True)
        inverse = 1 / (norm + 1e-7)
        along = (x * grad).sum(1 - dim, keepdim=True) * (x / norm)
        actual = torch.where(norm > 1, inverse * (grad - inverse * along), grad)
        result = reference(lambda x: torch.renorm(x, 2, dim, 1.0)).backward(x, grad)["grad_x"]
        assert result.covers(actual).all()
        assert not result.covers(actual * (1 + 4e-6)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("p", [0.5, 1, 2, 3, float("inf")])
def test_pytorchs_renorm_is_covered(dtype: torch.dtype, p: float) -> None:
    check_rule(lambda x: torch.renorm(x, p, 1, 1.0), [X[0, 0]], (dtype,), caught=0.0)


def test_rrelu_is_a_reference_in_evaluation_alone() -> None:
    x = torch.linspace(-2, 2, 12)
    assert verify(torch.nn.RReLU(0.1, 0.5).eval(), {"input": x}).covered
    assert not verify(lambda x: F.leaky_relu(x, 0.25), {"x": x}, reference=lambda x: F.rrelu(x)).covered
    with pytest.raises(TraceError, match="cannot draw random numbers"):
        verify(torch.nn.RReLU(), {"input": x})
