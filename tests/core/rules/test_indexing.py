"""Reading moves values; writing adds them up, and says where the outcome is undefined."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference
from tests.core.rules.checker import check_rule, check_special
from tests.core.rules.test_movement import special

GENERATOR = torch.Generator().manual_seed(2)
X = torch.randn(4, 5, generator=GENERATOR)
Y = torch.randn(4, 5, generator=GENERATOR)
INDEX = torch.randint(0, 4, (4, 5), generator=GENERATOR)
ROWS = torch.tensor([2, 0, 2, 3])
PERMUTED = torch.tensor([2, 0, 1, 3])

FUNCTIONS: dict[str, Any] = {
    "gather": lambda x, y: x.gather(0, INDEX),
    "index": lambda x, y: x[ROWS, 1:],
    "index with a mask": lambda x, y: x[torch.tensor([True, False, True, True])],
    "index_select": lambda x, y: x.index_select(0, ROWS),
    "take": lambda x, y: x.take(torch.tensor([0, 7, -1, 7])),
    "embedding": lambda x, y: torch.nn.functional.embedding(INDEX, x, padding_idx=1),
    "embedding by frequency": lambda x, y: torch.nn.functional.embedding(INDEX, x, scale_grad_by_freq=True),
    "scatter_add": lambda x, y: x.scatter_add(0, INDEX, y),
    "index_add": lambda x, y: x.index_add(0, ROWS, y, alpha=0.3),
    "index_put": lambda x, y: x.index_put((ROWS,), y, accumulate=True),
    "index_put once": lambda x, y: x.index_put((PERMUTED,), y),
    "index_copy": lambda x, y: x.index_copy(0, PERMUTED, y),
    "scatter": lambda x, y: x.scatter(0, PERMUTED[:, None].expand(4, 5), y),
    "scatter a number": lambda x, y: x.scatter(1, INDEX, 0.1),
    "put": lambda x, y: x.put(torch.tensor([3, 5, 3]), y[0, :3], accumulate=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_indexing_keeps_the_contract(name: str) -> None:
    check_rule(FUNCTIONS[name], [X, Y], caught=0.0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_indexing_carries_special_values(name: str) -> None:
    check_special(FUNCTIONS[name], [special(X), Y], decided=0.3)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_reductions_into_places_keep_the_contract(reduce: str, include: bool) -> None:
    check_rule(
        lambda x, y: x.scatter_reduce(0, INDEX, y, reduce, include_self=include),
        [X, Y],
        caught=0.0,
        gradient=reduce == "sum",
    )


def test_unequal_values_for_one_place_leave_it_unconstrained() -> None:
    result = reference(lambda x, y: x.index_put((ROWS,), y))(X, Y)
    verdict = result.verdict(X.index_put((ROWS,), Y))
    assert bool((verdict[2] == Element.UNCONSTRAINED).all())
    assert bool((verdict[[0, 1, 3]] == Element.COVERED).all())


def test_a_contribution_that_is_lost_is_violated() -> None:
    result = reference(lambda x, y: x.index_add(0, ROWS, y))(X, Y)
    assert bool((result.verdict(X.index_copy(0, ROWS, X[ROWS] + Y))[2] == Element.VIOLATED).all())


@pytest.mark.parametrize(
    "read",
    [
        lambda order, v: v[order],
        lambda order, v: v.index_select(0, order),
        lambda order, v: v.T[:, order],
        lambda order, v: v.T[None][:, :, order.reshape(2, 3)],
        lambda order, v: torch.nn.functional.embedding(order, v),
        lambda order, v: torch.arange(6)[order],
        lambda order, v: torch.arange(6).gather(0, order),
    ],
)
def test_what_is_read_at_a_certain_place_is_decided_beside_one_in_doubt(read: Any) -> None:
    """One tie among sorted values left everything that was read in their order unconstrained."""
    x = torch.tensor([1.0, 0.5, 0.5, 0.25, 0.125, 0.0])
    values = torch.arange(1.0, 13.0).reshape(6, 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        return read((x / 3 * 3).argsort(), values)

    result = reference(function)(x)
    found = result.verdict(function(x))
    assert int((found == Element.UNCONSTRAINED).sum()) * 3 == found.numel()
    assert int((found == Element.COVERED).sum()) * 3 == 2 * found.numel()
    wrong = result.verdict(function(x) + 1)
    assert int((wrong == Element.VIOLATED).sum()) * 3 == 2 * found.numel()
