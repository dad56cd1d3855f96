"""Choices, kinks, remainders, signs: eager results covered, one-sided derivatives accepted at kinks and only there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.reference import reference
from tests.core.rules.checker import check_rule, check_special

Tensor = torch.Tensor

CHOICES: dict[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "sign": torch.sign,
    "clamp": lambda x: x.clamp(-0.7, 1.1),
    "clamp_min": lambda x: x.clamp_min(0.3),
    "clamp_max": lambda x: x.clamp_max(0.3),
    "where": lambda x: torch.where(x > 0.25, x * 2, -x),
    "masked_fill": lambda x: x.masked_fill(x < 0, 0.1),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "frac": torch.frac,
    "fmod": lambda x: torch.fmod(x, 0.7),
    "remainder": lambda x: torch.remainder(x, 0.7),
    "nan_to_num": torch.nan_to_num,
    "frexp": lambda x: torch.frexp(x)[0],
    "angle": torch.angle,
}
PAIRS: dict[str, Callable[..., Any]] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "copysign": torch.copysign,
    "heaviside": torch.heaviside,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp tensor": lambda a, b: torch.lerp(a, b, a),
    "addcmul": lambda a, b: torch.addcmul(a, b, b, value=0.3),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.3),
    "clamp tensors": lambda a, b: a.clamp(b, b + 1),
}
SPECIAL = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-37, -1e-37, 0.5, 1.0, -1.0, 2.5, -80.0])


def _draw(seed: int, n: int = 100) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize("name", CHOICES)
def test_choice_keeps_the_contract(name: str) -> None:
    check_rule(CHOICES[name], [_draw(0)], caught=0.5, gradient=name not in ("heaviside", "frexp"))


@pytest.mark.parametrize("name", CHOICES)
def test_choice_of_special_values_is_never_violated(name: str) -> None:
    check_special(CHOICES[name], [SPECIAL], decided=0.5, gradient=False)


@pytest.mark.parametrize("name", PAIRS)
def test_choice_of_two_keeps_the_contract(name: str) -> None:
    check_rule(PAIRS[name], [_draw(1), _draw(2)], caught=0.5, gradient=name != "heaviside", eager=False)


@pytest.mark.parametrize("name", PAIRS)
def test_choice_of_two_special_values_is_never_violated(name: str) -> None:
    overflows = name in ("fmod", "remainder")  # PyTorch has NaN where a / b overflows
    values = SPECIAL[SPECIAL.abs() != torch.tensor(1e-37)] if overflows else SPECIAL
    x, y = values.repeat_interleave(len(values)), values.repeat(len(values))
    check_special(PAIRS[name], [x, y], decided=0.4, gradient=False)


@pytest.mark.parametrize(("function", "points"), [
    (lambda x: x.clamp(0.0, 1.0), [0.0, 1.0]),
    (torch.relu, [0.0, -0.0]),
    (lambda x: torch.maximum(x, torch.zeros(2)), [0.0, -0.0]),
    (lambda x: torch.nn.functional.hardtanh(x), [-1.0, 1.0]),
])  # fmt: skip
def test_any_value_between_both_slopes_is_accepted_and_counted_at_a_kink(function: Any, points: list[float]) -> None:
    x, grad = torch.tensor(points), torch.tensor([2.0, -3.0])
    result = reference(function).backward(x, grad).popitem()[1]
    eager = torch.func.vjp(function, x)[1](grad)[0]
    for share in (0.0, 0.3, 1.0):
        verdict, accepted = result.verdict_and_kinks(grad * share)
        assert (verdict == 0).all()
        assert accepted.all() or torch.equal(grad * share, eager)
    assert not result.covers(grad * 1.1).any()
    assert not result.covers(grad * -0.1).any()


def test_absolute_value_has_slopes_between_minus_one_and_one_at_zero() -> None:
    x, grad = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 2.0])
    result = reference(lambda x: x.abs()).backward(x, grad)["grad_x"]
    assert result.covers(torch.tensor([-2.0, 2.0])).all()
    assert result.covers(torch.tensor([-2.0, 1.9])).tolist() == [True, False]


def test_a_kink_is_refused_where_the_convention_is_insisted_on() -> None:
    from kernels_core.reference import Check

    x, grad = torch.tensor([0.0]), torch.tensor([2.0])
    result = Check(reference(torch.relu), {"input": x}, kinks="convention").gradients([grad])["grad_input"]
    assert result.covers(torch.tensor([0.0])).all()
    assert not result.covers(torch.tensor([1.0])).any()
