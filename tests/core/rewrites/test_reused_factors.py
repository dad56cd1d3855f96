"""The tangent of a linear system is bounded, although PyTorch computes it from factors that nothing is said of."""

from __future__ import annotations

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference

SYSTEMS = {
    "from the left": (lambda a, b: torch.linalg.solve(a, b), (4, 2)),
    "from the right": (lambda a, b: torch.linalg.solve(a, b, left=False), (2, 4)),
    "a vector": (lambda a, b: torch.linalg.solve(a, b), (4,)),
    "with the matrix transposed": (lambda a, b: torch.linalg.solve(a.mT, b), (4, 2)),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_tangent_of_a_solution_is_covered_and_another_is_violated(name: str) -> None:
    function, shape = SYSTEMS[name]
    drawn = (torch.randn(s, generator=torch.Generator().manual_seed(k)) for k, s in enumerate([(4, 4), shape] * 2))
    a, b, da, db = drawn
    a = a + 9 * torch.eye(4)
    (result,) = reference(function).jvp(a, b, tangents={"a": da, "b": db}).values()
    actual = torch.func.jvp(function, (a, b), (da, db))[1]
    assert (result.verdict(actual) == Element.COVERED).all()
    assert (result.verdict(actual * 1.001) == Element.VIOLATED).all()


@pytest.mark.parametrize("shape", [(3, 3), (1, 1), (2, 3, 3)])
@pytest.mark.parametrize("function", [torch.logdet, torch.det, lambda a: torch.linalg.slogdet(a.mT)[1]])
def test_tangent_of_a_determinant_is_covered_and_another_is_violated(function, shape) -> None:
    a, da = (torch.randn(shape, generator=torch.Generator().manual_seed(k)) for k in range(2))
    a = a + 9 * torch.eye(shape[-1])
    (result,) = reference(lambda a: function(a)).jvp(a, tangents={"a": da}).values()
    actual = torch.func.jvp(function, (a,), (da,))[1]
    assert (result.verdict(actual) == Element.COVERED).all()
    assert (result.verdict(actual * 1.001) == Element.VIOLATED).all()
