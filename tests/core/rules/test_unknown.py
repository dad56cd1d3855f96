"""What nothing is known of (bound inf) may be NaN: no rule may say more about what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.float8 import float8_cast
from tests.core.rules.checker import evaluate

Tensor = torch.Tensor


def unknown(x: Tensor) -> Tensor:
    """Return 0/0, or anything else, depending on the roundings of x 0.1 3."""
    rounded = x * 0.1 * 3 - 0.3
    return rounded / rounded


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "saturating cast": lambda x: unknown(x).to(torch.float8_e4m3fn),
    "saturating cast inside": lambda x: unknown(x).to(torch.float8_e4m3fn).float() * 2,
    "clamp": lambda x: unknown(x).clamp(-1, 1),
    "tanh": lambda x: torch.tanh(unknown(x)),
    "angle": lambda x: torch.angle(unknown(x)),
    "fmod": lambda x: torch.fmod(unknown(x), 0.7),
    "fmod by": lambda x: torch.fmod(x, x * 0.1 * 3 - 0.3),
    "remainder": lambda x: torch.remainder(unknown(x), 0.7),
    "remainder by": lambda x: torch.remainder(x, x * 0.1 * 3 - 0.3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_value_that_may_be_nan_stays_unknown(name: str) -> None:
    (result,), (actual,) = evaluate(FUNCTIONS[name], [torch.ones(1)], gradient=False)
    missing = torch.full(actual.shape, torch.nan).to(actual.dtype)
    assert [result.verdict(v).tolist() for v in (actual, missing)] == [[Element.UNCONSTRAINED]] * 2


def test_a_declared_overflow_to_nan_is_unknown_where_roundings_decide_it() -> None:
    x = torch.tensor([4640.0, 4600.0, 4700.0])  # 464 is the last value that rounds to 448
    dtype = torch.float8_e4m3fn
    (result,), _ = evaluate(lambda x: float8_cast(x * 0.1, dtype, overflow="nan"), [x], gradient=False)
    for value, expected in (
        (448.0, [Element.UNCONSTRAINED, Element.COVERED, Element.VIOLATED]),
        (torch.nan, [Element.UNCONSTRAINED, Element.VIOLATED, Element.COVERED]),
    ):
        assert result.verdict(torch.full((3,), value).to(dtype)).tolist() == expected


def test_the_gradient_of_an_extremum_that_may_be_nan_is_unknown() -> None:
    x = torch.ones(3)
    results, _ = evaluate(lambda x: torch.cat((unknown(x[:1]), x[1:])).amax(), [x])
    assert results[1].verdict(torch.full((3,), torch.nan)).tolist() == [Element.UNCONSTRAINED] * 3


@pytest.mark.parametrize("find", [lambda x: x.max(-1).indices, lambda x: x.argmax(-1), lambda x: (-x).argmin(-1)])
def test_an_index_is_unsure_where_a_rounded_value_may_pass_the_certain_extremum(find: Any) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return find(torch.cat((x, y * 0.1), -1))

    (result,), _ = evaluate(function, [torch.tensor([[0.1], [0.2]]), torch.ones(2, 1)], gradient=False)
    assert result.verdict(torch.ones(2, dtype=torch.int64)).tolist() == [Element.UNCONSTRAINED, Element.VIOLATED]
