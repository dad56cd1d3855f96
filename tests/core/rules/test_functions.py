"""Elementary functions and powers keep the contract of a rule, of exact and of rounded arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.coverage import Element
from tests.core.rules.checker import check_rule, check_special, evaluate

Tensor = torch.Tensor

FUNCTIONS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "exp": (torch.exp, -8, 8),
    "exp2": (torch.exp2, -8, 8),
    "expm1": (torch.expm1, -8, 8),
    "log": (torch.log, 0.01, 20),
    "log2": (torch.log2, 0.01, 20),
    "log10": (torch.log10, 0.01, 20),
    "log1p": (torch.log1p, -0.9, 20),
    "sqrt": (torch.sqrt, 0.01, 20),
    "rsqrt": (torch.rsqrt, 0.01, 20),
    "sin": (torch.sin, -8, 8),
    "cos": (torch.cos, -8, 8),
    "tan": (torch.tan, -1.5, 1.5),
    "asin": (torch.asin, -0.95, 0.95),
    "acos": (torch.acos, -0.95, 0.95),
    "atan": (torch.atan, -8, 8),
    "sinh": (torch.sinh, -6, 6),
    "cosh": (torch.cosh, -6, 6),
    "tanh": (torch.tanh, -4, 4),
    "asinh": (torch.asinh, -8, 8),
    "acosh": (torch.acosh, 1.1, 8),
    "atanh": (torch.atanh, -0.95, 0.95),
    "erf": (torch.erf, -3, 3),
    "erfc": (torch.erfc, -3, 3),
    "sigmoid": (torch.sigmoid, -6, 6),
    "logit": (torch.logit, 0.05, 0.95),
    "sinc": (torch.sinc, -3, 3),
    "square": (torch.square, -8, 8),
    "cube": (lambda x: x**3, -8, 8),
    "inverse": (lambda x: x**-1, 0.1, 8),
    "inverse square": (lambda x: x**-2, 0.1, 8),
    "x^2.7": (lambda x: x**2.7, 0.1, 8),
    "x^-0.3": (lambda x: x**-0.3, 0.1, 8),
    "1.7^x": (lambda x: 1.7**x, -8, 8),
}
PAIRS: dict[str, Callable[..., Any]] = {
    "pow": torch.pow,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
}
SPECIAL = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 2.5, 80.0, -80.0, 1e15])


def _spread(low: float, high: float, n: int = 100, seed: int = 0) -> Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(seed)) * (high - low) + low


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_keeps_the_contract(name: str) -> None:
    function, low, high = FUNCTIONS[name]
    check_rule(function, [_spread(low, high)], caught=0.2 if name == "tanh" else 0.5, eager=False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_a_rounded_argument_keeps_the_contract(name: str) -> None:
    function, low, high = FUNCTIONS[name]
    check_rule(lambda x, w: function(x * w), [_spread(low, high), torch.full((100,), 0.997)], caught=0.2, eager=False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_special_values_is_never_violated(name: str) -> None:
    check_special(FUNCTIONS[name][0], [SPECIAL], decided=0.3, gradient=name != "logit")  # its pole takes the sign of -0


@pytest.mark.parametrize("name", PAIRS)
def test_function_of_two_keeps_the_contract(name: str) -> None:
    x, y = _spread(0.2, 4, seed=1), _spread(0.2, 4, seed=2)
    check_rule(PAIRS[name], [x, y], caught=0.5, eager=False)
    check_rule(lambda x, y, w: PAIRS[name](x * w, y), [x, y, torch.full((100,), 1.1)], caught=0.3, eager=False)


@pytest.mark.parametrize("name", PAIRS)
def test_function_of_two_special_values_is_never_violated(name: str) -> None:
    x, y = SPECIAL.repeat_interleave(len(SPECIAL)), SPECIAL.repeat(len(SPECIAL))
    check_special(PAIRS[name], [x, y], decided=0.4, gradient=False)


def test_root_of_a_number_that_may_be_negative_is_unconstrained() -> None:
    x = torch.tensor([1.0, 1.0])
    (result,), _ = evaluate(lambda x: (x * 1.1 - 1.1).sqrt(), [x], gradient=False)
    assert (result.verdict(torch.tensor([math.nan, 0.0])) == Element.UNCONSTRAINED).all()


def test_negative_number_to_a_rounded_power_is_nan_for_certain() -> None:
    (result,), _ = evaluate(lambda x, p: x ** (p * 1.1), [torch.tensor([-2.0]), torch.tensor([0.7])], gradient=False)
    assert result.covers(torch.tensor([math.nan])).all()
    assert not result.covers(torch.tensor([1.0])).any()
