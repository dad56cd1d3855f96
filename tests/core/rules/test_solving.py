"""Solutions of linear systems: eager kernels covered, errors caught, what is singular left open."""

from __future__ import annotations

import pytest
import torch

from kernels_core.coverage import Element
from tests.core.rules.checker import check_rule, evaluate

F32, F64 = [torch.float32], [torch.float64]


def regular(*shape: int, seed: int = 0) -> torch.Tensor:
    """A random matrix that is far from singular."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) + 2 * shape[-1] * torch.eye(shape[-1])


@pytest.mark.parametrize("dtypes", [F32, F64])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 3)])
def test_inverse_covers_eager_kernels(shape: tuple[int, ...], dtypes: list[torch.dtype]) -> None:
    check_rule(torch.linalg.inv, [regular(*shape)], dtypes, planted_ulp=512, caught=0.8)


@pytest.mark.parametrize("dtypes", [F32, F64])
@pytest.mark.parametrize("shapes", [((4, 4), (4, 2)), ((4, 4), (4,)), ((2, 3, 3), (3, 2)), ((0, 0), (0, 2))])
def test_solve_covers_eager_kernels(shapes: tuple[tuple[int, ...], ...], dtypes: list[torch.dtype]) -> None:
    torch.manual_seed(1)
    a = regular(*shapes[0]) if shapes[0][0] else torch.zeros(shapes[0])
    check_rule(torch.linalg.solve, [a, torch.randn(shapes[1])], dtypes, planted_ulp=512, caught=0.8)


def test_solve_from_the_right_covers_eager_kernels() -> None:
    check_rule(
        lambda a, b: torch.linalg.solve(a, b, left=False),
        [regular(4, 4), torch.randn(2, 4)],
        F32,
        planted_ulp=512,
        caught=0.8,
    )


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_solve_triangular_covers_eager_kernels(upper: bool, left: bool, unit: bool) -> None:
    torch.manual_seed(2)
    a = 0.1 * torch.randn(4, 4) + torch.eye(4)
    b = torch.randn(4, 3) if left else torch.randn(3, 4)
    check_rule(
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit),
        [a, b],
        F32,
        planted_ulp=512,
        caught=0.8,
    )


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_lu_solve_covers_eager_kernels(adjoint: bool, left: bool) -> None:
    factors, pivots = torch.linalg.lu_factor(torch.randn(4, 4, generator=torch.Generator().manual_seed(3)) * 3)
    b = torch.randn(4, 2) if left else torch.randn(2, 4)
    check_rule(
        lambda lu, b: torch.linalg.lu_solve(lu, pivots, b, left=left, adjoint=adjoint),
        [factors, b],
        F32,
        planted_ulp=65536,
        caught=0.8,
    )


@pytest.mark.parametrize("upper", [False, True])
def test_solutions_from_a_cholesky_factor_cover_eager_kernels(upper: bool) -> None:
    factor = torch.linalg.cholesky(regular(4, 4) @ regular(4, 4).mT, upper=upper)
    check_rule(lambda b, f: torch.cholesky_solve(b, f, upper), [torch.randn(4, 2), factor], F32, planted_ulp=4096)
    check_rule(lambda f: torch.cholesky_inverse(f, upper), [factor], F32, planted_ulp=4096)


def test_the_solution_of_a_nearly_singular_system_is_never_covered_wrongly() -> None:
    a = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 2.0**-22]])
    (x, *_), (actual, *_) = evaluate(torch.linalg.solve, [a, torch.tensor([[1.0], [2.0]])])
    assert bool((x.verdict(actual) != Element.VIOLATED).all())
    assert not bool((x.verdict(actual * 1e6) == Element.COVERED).any())


def test_a_matrix_that_roundings_may_make_singular_leaves_its_solution_unconstrained() -> None:
    a, b = torch.tensor([[1.0, 3.0], [1 / 3, 1.0]]), torch.ones(2, 1)
    function = lambda a, b: torch.linalg.solve_ex(a * 1.1, b)[0]  # noqa: E731
    (result,), (actual,) = evaluate(function, [a, b], gradient=False)
    assert bool((result.verdict(actual) == Element.UNCONSTRAINED).all())


def test_triangular_solve_returns_the_triangle_that_it_was_given() -> None:
    a, b = torch.randn(3, 3).tril() + 3 * torch.eye(3), torch.randn(3, 1)
    check_rule(lambda b, a: torch.triangular_solve(b, a, upper=False).cloned_coefficient * 1.1, [b, a], F32)


@pytest.mark.parametrize("unit", [False, True])
def test_substitution_with_reciprocals_of_the_diagonal_is_covered(unit: bool) -> None:
    """BLAS kernels multiply by 1 / t_kk: two roundings, where a division has one."""
    torch.manual_seed(0)
    t, b = torch.rand(4096, 1, 1) + 0.5, torch.randn(4096, 1, 1)
    results, _ = evaluate(
        lambda t, b: torch.linalg.solve_triangular(t, b, upper=True, unitriangular=unit), [t, b], gradient=False
    )
    right = b.clone() if unit else b * (1 / t)
    assert bool((results[0].verdict(right) == Element.COVERED).all())
    assert bool((results[0].verdict(right * (1 + 2.0**-21)) == Element.VIOLATED).all())
