"""LU, Cholesky and QR: eager kernels covered, errors caught, ties of pivots and signs left open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.coverage import Element
from tests.core.rules.checker import assert_contained, check_rule, evaluate
from tests.core.rules.test_solving import regular

SHAPES = [(4, 4), (4, 2), (2, 4), (2, 3, 3), (1, 1)]


def drawn(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)) + 2 * torch.eye(*shape[-2:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_lu_covers_eager_kernels(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check_rule(lambda a: tuple(torch.linalg.lu(a))[1:], [drawn(shape)], [dtype], planted_ulp=4096, caught=0.8)
    check_rule(lambda a: torch.linalg.lu(a)[0], [drawn(shape)], [dtype], gradient=False)
    check_rule(lambda a: torch.linalg.lu_factor(a)[0], [drawn(shape)], [dtype], planted_ulp=4096, caught=0.8)


def test_lu_unpack_moves_the_factors() -> None:
    compact, pivots = torch.linalg.lu_factor(drawn((2, 4, 3)))
    check_rule(
        lambda c: tuple(torch.lu_unpack(c, pivots))[1:],
        [compact],
        [torch.float32],
        planted_ulp=1,
        caught=0.7,
        gradient=False,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3), (1, 1)])
def test_cholesky_covers_eager_kernels(shape: tuple[int, ...], upper: bool, dtype: torch.dtype) -> None:
    a = regular(*shape)
    check_rule(lambda a: torch.linalg.cholesky(a, upper=upper), [a @ a.mT], [dtype], planted_ulp=4096)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_qr_covers_eager_kernels(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check_rule(lambda a: tuple(torch.linalg.qr(a)), [drawn(shape)], [dtype], planted_ulp=2.0**14, caught=0.6)


OPEN: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "pivots tie": (lambda a: torch.linalg.lu_factor(a)[0], torch.tensor([[1.0, 2.0], [-1.0, 3.0]])),
    "indefinite": (lambda a: torch.linalg.cholesky_ex(a)[0], torch.tensor([[1.0, 2.0], [2.0, 4.0]])),
    "a reflection starts from zero": (lambda a: torch.linalg.qr(a)[0], torch.tensor([[0.0, 2.0], [1.0, 3.0]])),
}


@pytest.mark.parametrize("name", OPEN)
def test_factors_that_roundings_may_turn_are_unconstrained_where(name: str) -> None:
    function, a = OPEN[name]
    (result,), (actual,) = evaluate(function, [a], gradient=False)
    assert bool((result.verdict(actual)[a != 0] == Element.UNCONSTRAINED).any())


def test_a_wrong_sign_of_a_qr_factor_is_violated() -> None:
    a = drawn((4, 3))
    (q, _), (actual, _) = evaluate(lambda a: tuple(torch.linalg.qr(a)), [a], gradient=False)
    assert bool((q.verdict(-actual) == Element.VIOLATED).any())


@pytest.mark.parametrize("below", [0.0, 1e-3])
def test_a_reflection_of_nothing_keeps_the_sign(below: float) -> None:
    a = torch.triu(drawn((4, 4))).index_put((torch.tensor([2]), torch.tensor([1])), torch.tensor(below))
    results, actuals = evaluate(lambda a: tuple(torch.linalg.qr(a)), [a], gradient=False)
    for result, actual in zip(results, actuals, strict=True):
        assert not bool((result.verdict(actual) == Element.VIOLATED).any())
        assert_contained(result)
        covered = (result.verdict(actual) == Element.COVERED).all()
        assert bool(covered) == (below == 0.0)  # with something below one diagonal element, the others may turn


def test_multipliers_by_the_reciprocal_of_the_pivot_are_covered() -> None:
    torch.manual_seed(0)
    a = torch.rand(4096, 3, 1) * 0.5
    a[:, 0] += 1
    (result, *_), _ = evaluate(lambda a: torch.linalg.lu_factor(a)[0], [a], gradient=False)
    right = torch.cat((a[:, :1], a[:, 1:] * (1 / a[:, :1])), 1)
    assert bool((result.verdict(right) == Element.COVERED).all())
    wrong = result.verdict(right * (1 + 2.0**-20))
    assert float((wrong[:, 1:] == Element.VIOLATED).double().mean()) > 0.9
