"""Matrix products: any order of summation and no more; infinities by class; bounds in float32 are upper bounds."""

import math

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.rules.nonnegative import Weight, nonnegative_product
from tests.core.rules.checker import check_rule, check_special, evaluate

Tensor = torch.Tensor


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


PRODUCTS = {
    "mm": (torch.mm, [draw(4, 7), draw(7, 5)]),
    "mm of bounded operands": (lambda a, b: (a * 1.1) @ (b * 0.7), [draw(4, 7), draw(7, 5)]),
    "bmm": (torch.bmm, [draw(2, 4, 7), draw(2, 7, 5)]),
    "mv": (torch.mv, [draw(4, 7), draw(7)]),
    "dot": (torch.dot, [draw(7), draw(7, seed=1)]),
    "vdot": (torch.vdot, [draw(7), draw(7, seed=1)]),
    "outer": (torch.outer, [draw(7), draw(3)]),
    "addmm": (lambda s, a, b: torch.addmm(s, a, b, beta=0.3, alpha=1.7), [draw(5), draw(4, 7), draw(7, 5)]),
    "addmm without its summand": (lambda s, a, b: torch.addmm(s, a, b, beta=0), [draw(5), draw(4, 7), draw(7, 5)]),
    "linear": (torch.nn.functional.linear, [draw(2, 3, 7), draw(5, 7), draw(5)]),
    "baddbmm": (lambda s, a, b: torch.baddbmm(s, a, b, alpha=2), [draw(1, 4, 5), draw(2, 4, 7), draw(2, 7, 5)]),
    "addbmm": (lambda s, a, b: torch.addbmm(s, a, b, beta=0.3), [draw(4, 5), draw(2, 4, 7), draw(2, 7, 5)]),
    "addmv": (lambda s, a, b: torch.addmv(s, a, b, beta=0.3), [draw(4), draw(4, 7), draw(7)]),
    "addr": (lambda s, a, b: torch.addr(s, a, b, beta=0.3, alpha=2), [draw(4, 7), draw(4), draw(7)]),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), [draw(2, 3, 4), draw(2, 5, 4)]),
    "matmul that broadcasts": (torch.matmul, [draw(3, 1, 4, 5), draw(2, 5, 3)]),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), [draw(3, 4, 5), draw(4, 5, 2)]),
    "bilinear": (torch.nn.functional.bilinear, [draw(6, 4), draw(6, 3), draw(5, 4, 3), draw(5)]),
    "kron": (torch.kron, [draw(2, 3), draw(3, 2)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product_keeps_the_contract(name):
    function, inputs = PRODUCTS[name]
    check_rule(function, inputs, caught=0.5)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(3, 0, 4), (0, 3, 4), (3, 4, 0), (1, 1, 1)])
def test_empty_and_single_products_keep_the_contract(rows, inner, columns):
    check_rule(torch.mm, [draw(rows, inner), draw(inner, columns)])


def test_integer_products_are_exact():
    a, b = torch.arange(12).reshape(3, 4), torch.arange(8).reshape(4, 2)
    (result,), (actual,) = evaluate(torch.mm, [a, b], gradient=False)
    assert bool(result.covers(actual).all())
    assert not bool(result.covers(actual + 1).any())


@pytest.mark.parametrize("seed", range(20))
def test_infinities_and_nan_have_their_class(seed):
    a, b = draw(6, 5, seed=seed), draw(5, 7, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for operand in (a, b):
        for value in (math.inf, -math.inf, math.nan, 0.0):
            if float(torch.rand((), generator=generator)) < 0.4:
                operand.view(-1)[int(torch.randint(operand.numel(), (), generator=generator))] = value
    check_special(torch.mm, [a, b], decided=1.0)
    check_special(lambda a, b: (a * 1.5) @ b, [a, b], decided=0.8)
    (result,), (actual,) = evaluate(torch.mm, [a, b], gradient=False)
    wrong = torch.where(actual.isfinite(), math.nan, 1.0)
    assert bool((result.verdict(wrong) == Element.VIOLATED).all())


def test_an_infinity_beside_a_summand_keeps_its_class():
    s, a, b = draw(3, 3), draw(3, 4), draw(4, 3)
    s[0, 0], a[1, 1], a[0, 2] = math.inf, -math.inf, math.inf
    check_special(lambda s, a, b: torch.addmm(s, a, b, beta=0.5), [s, a, b], decided=1.0)


@pytest.mark.parametrize("spread", [1.0, 1e20, 1e200])
def test_nonnegative_products_are_upper_bounds_and_tight(spread):
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(200, 150, generator=generator, dtype=torch.float64).pow(3) * spread
    b = torch.rand(150, 180, generator=generator, dtype=torch.float64)
    a[::7, ::5] = 0
    exact = a @ b
    for turned in (False, True):
        x = Weight(a if not turned else a.T.contiguous().T)
        upper = nonnegative_product(torch.mm, x, Weight(b), {})
        assert bool((upper >= exact * (1 - 2.0**-44)).all())
        assert bool((upper <= exact * (1 + 1e-4)).all())


def test_float32_bounds_are_not_taken_where_float32_is_not_float32():
    a, b = torch.rand(200, 200, dtype=torch.float64), torch.rand(200, 200, dtype=torch.float64)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        upper = nonnegative_product(torch.mm, Weight(a), Weight(b), {})
    finally:
        torch.set_float32_matmul_precision(before)
    assert bool((upper >= a @ b).all())
    assert bool((upper <= (a @ b) * (1 + 1e-12)).all())
