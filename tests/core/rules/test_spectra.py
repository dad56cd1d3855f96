"""Eigenvalues, singular values, their vectors, pseudo-inverses: eager kernels covered, errors caught, signs free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flint
import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference
from kernels_core.rules.pseudoinverses import _float
from tests.core.rules.checker import check_rule, evaluate

Tensor = torch.Tensor


def drawn(*shape: int) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(3))


def _gram(a: Tensor) -> Tensor:
    return a @ a.mT / 8 if a.shape[-1] >= a.shape[-2] else a.mT @ a / 8


def _exponential(a: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(_gram(a))
    return (vectors * values.exp().unsqueeze(-2)) @ vectors.mT


def _low_rank(a: Tensor) -> Tensor:
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    return (u[..., :2] * s[..., None, :2]) @ vh[..., :2, :]


OPERATIONS: dict[str, Callable[[Tensor], Any]] = {
    "eigvalsh": lambda a: torch.linalg.eigvalsh(_gram(a)),
    "function of eigenvectors": _exponential,
    "svdvals": lambda a: torch.linalg.svdvals(a),
    "low rank": _low_rank,
    "nuclear norm": lambda a: torch.linalg.matrix_norm(a, "nuc"),
    "spectral norm": lambda a: torch.linalg.matrix_norm(a, 2),
    "cond": lambda a: torch.linalg.cond(a),
    "pinv": lambda a: torch.linalg.pinv(a),
    "lstsq": lambda a: torch.linalg.lstsq(a, a.flip(-1) + 1, driver="gels")[0],
}


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [*((s, torch.float32) for s in [(3, 3), (4, 2), (2, 4), (2, 3, 3), (1, 1)]), ((4, 2), torch.float64)],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_functions_of_spectra_cover_eager_kernels(operation: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check_rule(OPERATIONS[operation], [drawn(*shape)], [dtype], planted_ulp=2.0**21, caught=0.3)


def test_least_squares_has_residuals_rank_and_singular_values() -> None:
    check_rule(
        lambda a, b: tuple(torch.linalg.lstsq(a, b, driver="gelsd")),
        [drawn(5, 3), drawn(5, 2)],
        [torch.float32],
        gradient=False,
        planted_ulp=2.0**18,
    )


FREE: dict[str, Callable[[Tensor], Tensor]] = {
    "eigenvectors": lambda a: torch.linalg.eigh(a + a.mT)[1],
    "one singular vector": lambda a: torch.linalg.svd(a)[0][:, 0],
    "product of vectors": lambda a: torch.linalg.svd(a)[0].prod(-1),
    "product of two vectors": lambda a: torch.linalg.svd(a)[0][:, :2].prod(-1),
}


@pytest.mark.parametrize("name", FREE)
def test_what_depends_on_the_sign_of_a_vector_is_unconstrained(name: str) -> None:
    (result, grad), (actual, grad_actual) = evaluate(FREE[name], [drawn(3, 3)])
    assert bool((result.verdict(-actual) == Element.UNCONSTRAINED).all())
    assert bool((grad.verdict(-grad_actual) == Element.UNCONSTRAINED).any())


def test_vectors_of_equal_values_are_unconstrained_and_their_values_are_not() -> None:
    a = torch.eye(3)
    values, vectors = reference(lambda a: (lambda w, v: (w, v.abs()))(*torch.linalg.eigh(a)))(a)
    assert bool((values.verdict(torch.ones(3)) == Element.COVERED).all())
    assert bool((values.verdict(torch.full((3,), 1.001)) == Element.VIOLATED).all())
    assert bool((vectors.verdict(a) == Element.UNCONSTRAINED).all())


def test_a_rank_that_roundings_decide_leaves_the_pseudo_inverse_unconstrained() -> None:
    a = torch.diag(torch.tensor([1.0, 1e-3, 1e-8]))
    pinv = reference(lambda a, rtol: torch.linalg.pinv(a, rtol=rtol))
    assert bool((pinv(a, 1e-8).verdict(torch.linalg.pinv(a, rtol=1e-8)) == Element.UNCONSTRAINED).all())
    assert bool((pinv(a, 1e-2).verdict(torch.linalg.pinv(a, rtol=1e-2)) == Element.COVERED).all())
    assert bool((pinv(a, 1e-2).verdict(torch.linalg.pinv(a, rtol=1e-5)) == Element.VIOLATED).any())


def test_rationals_beyond_the_range_of_float64_have_a_quotient_in_it() -> None:
    assert _float(flint.fmpq(3 * 10**400, 2 * 10**400 + 2)) == 1.5
