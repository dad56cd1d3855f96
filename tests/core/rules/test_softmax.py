"""Softmax and its relatives: every form that the bound grants, and no more."""

import math

import pytest
import torch

from kernels_core.coverage import Element
from tests.core.rules.checker import assert_covered, check_rule, check_special, evaluate

Tensor = torch.Tensor


def rows(*shape: int, spread: float = 3.0, offset: float = 0.0, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread + offset


FUNCTIONS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax of a product": lambda x: torch.softmax(x * 1.1, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "log_softmax of a product": lambda x: torch.log_softmax(x * 1.1, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "logsumexp over all": lambda x: torch.logsumexp(x * 1.1, (0, 1), keepdim=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(3, 17), (1, 1), (2, 1), (4, 0)])
def test_softmax_family_keeps_the_contract(name, shape):
    check_rule(FUNCTIONS[name], [rows(*shape)], caught=0.5, planted_ulp=512.0, eager=False)


def test_softmax_along_another_dimension_keeps_the_contract():
    check_rule(lambda x: torch.softmax(x, 0), [rows(7, 3, 2)], (torch.float32,), caught=0.5, planted_ulp=512.0)
    check_rule(lambda x: torch.log_softmax(x, 1), [rows(7, 3, 2)], caught=0.5, planted_ulp=512.0, eager=False)


def test_softmax_of_a_single_number_is_one():
    check_rule(lambda x: torch.softmax(x, 0), [torch.tensor(2.5)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_have_their_class(name):
    x = rows(8, 6)
    x[0, 2] = -math.inf
    x[1] = -math.inf
    x[2, 1] = math.inf
    x[3, 0] = math.nan
    x[4] = 0.0
    x[5] = 1e-45
    x[6, 0], x[6, 1] = math.inf, -math.inf
    x[7] = torch.tensor([300.0, -300.0, 88.0, 0.0, -0.0, 1.0])
    check_special(FUNCTIONS[name], [x], gradient=False, decided=0.9 if name != "logsumexp over all" else 0.0)


def test_a_masked_column_has_weight_zero_and_nothing_else():
    x = rows(2, 5)
    x[0, 3] = -math.inf
    (result,), _ = evaluate(lambda x: torch.softmax(x, -1), [x], gradient=False)
    actual = torch.softmax(x, -1)
    actual[0, 3] = 1e-40
    assert result.verdict(actual)[0, 3] == Element.VIOLATED


def streaming(x: Tensor, block: int) -> Tensor:
    top = torch.full_like(x[:, :1], -math.inf)
    total = torch.zeros_like(top)
    for part in x.split(block, -1):
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        total = total * torch.exp(top - new) + torch.exp(part - new).sum(-1, keepdim=True)
        top = new
    return torch.exp(x - top) / total


def from_logsumexp(x: Tensor) -> Tensor:
    return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))


def sequential(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    total = torch.zeros_like(x[:, 0])
    for column in powers.unbind(-1):
        total = total + column
    return powers * (1 / total)[:, None]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("order", ["random", "ascending", "descending"])
def test_every_form_of_softmax_is_covered(seed, order):
    x = rows(4, 700, spread=[0.1, 3.0, 30.0][seed % 3], offset=[0.0, 40.0][seed % 2], seed=seed)
    if order != "random":
        x = x.sort(-1, descending=order == "descending").values
    (result,), _ = evaluate(lambda x: torch.softmax(x, -1), [x], gradient=False)
    for actual in (streaming(x, 16), streaming(x, 128), from_logsumexp(x), sequential(x)):
        assert_covered(result, actual)


def test_a_softmax_that_drops_a_column_from_the_sum_is_violated():
    x = rows(4, 200, spread=1.0)
    (result,), _ = evaluate(lambda x: torch.softmax(x, -1), [x], gradient=False)
    wrong = torch.exp(x) / torch.exp(x[:, :-1]).sum(-1, keepdim=True)
    assert bool((result.verdict(wrong) == Element.VIOLATED).all())


def test_a_softmax_in_half_precision_is_violated():
    x = rows(4, 200, spread=1.0)
    (result,), _ = evaluate(lambda x: torch.softmax(x, -1), [x], gradient=False)
    assert float((result.verdict(torch.softmax(x, -1).half().float()) == Element.VIOLATED).double().mean()) > 0.5
