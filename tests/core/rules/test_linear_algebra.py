"""Every rule of linear algebra contains the exact value, on matrices whose structure leaves roundings no room.

A midpoint must be computed with an error that the bound of its own structure covers: a triangle with a unit diagonal,
permuted, graded or nearly singular has zeros and small elements where the rounding of another algorithm shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import Check, reference
from tests.core.rules.checker import assert_contained, evaluate

Tensor = torch.Tensor


def drawn(*shape: int, seed: int = 7) -> Tensor:
    return 3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def symmetric(a: Tensor) -> Tensor:
    return a @ a.mT + torch.eye(a.shape[-1])


MATRICES: dict[str, Tensor] = {
    "one element": torch.tensor([[-0.3]]),
    "no element": torch.zeros(0, 0),
    "batched": drawn(2, 3, 3),
    "no batch": drawn(0, 3, 3),
    "upper triangle": torch.triu(drawn(4, 4)),
    "lower triangle": torch.tril(drawn(4, 4)),
    "unit triangle": torch.triu(drawn(4, 4), 1) + torch.eye(4),
    "permuted triangle": torch.triu(drawn(4, 4))[[2, 0, 3, 1]],
    "graded": drawn(4, 4) * torch.tensor([1e6, 1.0, 1e-6, 1e-12]),
    "nearly singular": torch.tensor([[1.0, 1.0, 2.0], [1.0, 1.0 + 2.0**-22, 2.0], [0.0, 1.0, -1.0]]),
    "growing": torch.eye(6).tril() - torch.ones(6, 6).tril(-1) + torch.nn.functional.pad(torch.ones(6, 1), (5, 0)),
}


def _triangular(upper: bool, left: bool, unit: bool) -> Callable[[Tensor], Tensor]:
    def function(a: Tensor) -> Tensor:
        b = a.mT.flip(-1) + 1
        return torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)

    return function


OPERATIONS: dict[str, Callable[[Tensor], Any]] = {
    "inv": lambda a: torch.linalg.inv(a),
    "solve": lambda a: torch.linalg.solve(a, a.mT.flip(-1) + 1),
    "solve from the right": lambda a: torch.linalg.solve(a, a.mT.flip(-1) + 1, left=False),
    "upper": _triangular(True, True, False),
    "upper unit": _triangular(True, True, True),
    "upper unit from the right": _triangular(True, False, True),
    "lower unit": _triangular(False, True, True),
    "lower from the right": _triangular(False, False, False),
    "triangular_solve": lambda a: torch.triangular_solve(a.mT.flip(-1) + 1, a, True, True, False)[0],
    "lu": lambda a: tuple(torch.linalg.lu(a))[1:],
    "lu_solve": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a.mT.flip(-1) + 1),
    "cholesky": lambda a: torch.linalg.cholesky(
        a @ a.mT + a.square().sum((-2, -1), keepdim=True) * torch.eye(a.shape[-1])
    ),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(a + 4 * torch.eye(a.shape[-1])),
    "cholesky_solve": lambda a: torch.cholesky_solve(a.mT.flip(-1) + 1, a),
    "qr": lambda a: tuple(torch.linalg.qr(a)),
    "det": lambda a: torch.linalg.det(a),
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "matrix_exp": lambda a: torch.linalg.matrix_exp(a / 64),
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a),
    "eigvalsh of the upper triangle": lambda a: torch.linalg.eigvalsh(a, UPLO="U"),
    "eigenvectors": lambda a: torch.linalg.eigh(a)[1].abs(),
    "svdvals": lambda a: torch.linalg.svdvals(a),
    "singular vectors": lambda a: [x.abs() for x in torch.linalg.svd(a, full_matrices=False)],
    "pinv": lambda a: torch.linalg.pinv(a),
    "pinv with a cutoff": lambda a: torch.linalg.pinv(a, atol=1.0),
    "pinv of a symmetric matrix": lambda a: torch.linalg.pinv(a, hermitian=True),
    "lstsq": lambda a: torch.linalg.lstsq(a, a.mT.flip(-1) + 1)[0],
}


WIDE = ("unit triangle", "permuted triangle", "graded", "nearly singular")


@pytest.mark.parametrize(
    ("matrix", "dtype"), [*((m, torch.float32) for m in MATRICES), *((m, torch.float64) for m in WIDE)]
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_enclosures_contain_the_exact_value(operation: str, matrix: str, dtype: torch.dtype) -> None:
    results, actuals = evaluate(OPERATIONS[operation], [MATRICES[matrix].to(dtype)])
    for result, actual in zip(results, actuals, strict=True):
        assert_contained(result)
        assert not bool((result.verdict(actual) == Element.VIOLATED).any()), result.name


@pytest.mark.parametrize("matrix", ["unit triangle", "permuted triangle", "batched"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_second_order_enclosures_contain_the_exact_value(operation: str, matrix: str) -> None:
    a = MATRICES[matrix]
    check = Check(reference(OPERATIONS[operation]), {"a": a})
    upstream = [drawn(*m.shape, seed=3) for m in check.forward.output_metas.values() if m.dtype.is_floating_point]
    for result in check.second_order(upstream, {"grad_a": drawn(*a.shape, seed=4)}).values():
        assert_contained(result)
