"""Special functions and their derivatives keep the contract of a rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.core.rules.checker import check_rule, check_special

FUNCTIONS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "erfinv": (torch.erfinv, -0.95, 0.95),
    "lgamma": (torch.lgamma, 0.1, 30.0),
    "lgamma left": (torch.lgamma, -4.9, -0.1),
    "digamma": (torch.digamma, 0.1, 30.0),
    "digamma left": (torch.digamma, -4.9, -0.1),
    "trigamma": (lambda x: torch.polygamma(1, x), 0.1, 30.0),
    "polygamma": (lambda x: torch.polygamma(3, x), 0.3, 30.0),
    "i0": (torch.i0, -10.0, 10.0),
    "i0e": (torch.special.i0e, -10.0, 10.0),
    "i1": (torch.special.i1, -10.0, 10.0),
    "i1e": (torch.special.i1e, -10.0, 10.0),
    "erfcx": (torch.special.erfcx, -4.0, 20.0),
    "ndtr": (torch.special.ndtr, -4.0, 4.0),
    "ndtri": (torch.special.ndtri, 0.01, 0.99),
    "log_ndtr": (torch.special.log_ndtr, -20.0, 4.0),
    "entr": (torch.special.entr, 0.01, 4.0),
    "mvlgamma": (lambda x: torch.mvlgamma(x, 3), 1.5, 20.0),
}
FLOAT32 = (torch.float32,)  # the 16-bit derivatives are compositions that round on the way


def _spread(low: float, high: float, n: int = 120) -> torch.Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(0)) * (high - low) + low


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_function_keeps_the_contract(name: str) -> None:
    function, low, high = FUNCTIONS[name]
    check_rule(function, [_spread(low, high)], FLOAT32, caught=0.05 if name == "i1e" else 0.25, planted_ulp=256)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_function_of_a_rounded_argument_keeps_the_contract(name: str) -> None:
    function, low, high = FUNCTIONS[name]
    inputs = [_spread(low, high), torch.linspace(0.97, 1.0, 120)]
    check_rule(lambda x, w: function(x * w), inputs, FLOAT32, caught=0.05 if name == "i1e" else 0.2, planted_ulp=256)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "polygamma"])  # PyTorch has NaN at infinity
def test_special_function_of_special_values_is_never_violated(name: str) -> None:
    special = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 2.0, 30.0, -30.0])
    check_special(FUNCTIONS[name][0], [special], decided=0.2, gradient=False)
