"""Extrema, moments, norms, products and scans."""

import math

import flint
import numpy as np
import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.exact.numbers import Numbers
from kernels_core.exact.tier import Budget, Cone
from kernels_core.reference import reference
from tests.core.rules.checker import assert_covered, check_rule, check_special, evaluate

Tensor = torch.Tensor


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


REDUCTIONS = {
    "amax": lambda x: x.amax(-1),
    "amin of a product": lambda x: (x * 1.1).amin(0, keepdim=True),
    "max over all": lambda x: (x * 1.1).max(),
    "max with indices": lambda x: x.max(-1),
    "min with indices": lambda x: (x * 1.1).min(0),
    "aminmax": lambda x: torch.aminmax(x, dim=-1),
    "var": lambda x: x.var(-1),
    "var over all": lambda x: (x * 1.1).var(correction=0),
    "std": lambda x: (x * 1.1).std(-1),
    "var_mean": lambda x: torch.var_mean(x, 0, keepdim=True),
    "norm": lambda x: torch.linalg.vector_norm(x * 1.1, dim=-1),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, math.inf, -1),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3, -1),
    "prod": lambda x: x.prod(-1),
    "prod over all": lambda x: (x * 1.1).prod(),
    "cumprod": lambda x: x.cumprod(0),
    "cumsum": lambda x: (x * 1.1).cumsum(-1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
    "cummax": lambda x: torch.cummax(x, -1),
    "cummin": lambda x: torch.cummin(x, 0),
    "argmax": lambda x: x.argmax(-1),
    "nansum": lambda x: x.nansum(-1),
}
SINGLE = [name for name in REDUCTIONS if name != "argmax"]
NARROW = [name for name in SINGLE if "prod" not in name]  # PyTorch multiplies 16-bit values in 16 bit


@pytest.mark.parametrize("name", SINGLE)
def test_reduction_keeps_the_contract_in_float32(name):
    check_rule(REDUCTIONS[name], [draw(5, 7)], (torch.float32,), caught=0.5, planted_ulp=1024.0)


@pytest.mark.parametrize("name", NARROW)
def test_reduction_keeps_the_contract_in_16_bit(name):
    check_rule(REDUCTIONS[name], [draw(5, 7)], (torch.bfloat16, torch.float16), caught=0.3, planted_ulp=64.0)


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("shape", [(1, 1), (3, 1)])
def test_reduction_of_single_values_is_covered(name, shape):
    if "var" in name or "std" in name:
        pytest.skip("the variance of one value is 0 / 0")
    check_rule(REDUCTIONS[name], [draw(*shape)], (torch.float32,), caught=0.0)


@pytest.mark.parametrize("name", [*NARROW, "argmax", "prod", "cumprod"])
def test_special_values_are_never_violated(name):
    x = draw(8, 6)
    x[0, 2] = -math.inf
    x[1] = -math.inf
    x[2, 1] = math.inf
    x[3, 0] = math.nan
    x[4] = 0.0
    x[5] = 1e-45
    x[6, 0], x[6, 1] = math.inf, -math.inf
    check_special(REDUCTIONS[name], [x], gradient=False, decided=0.0)


def test_an_extremum_with_one_largest_element_has_one_gradient():
    x = torch.tensor([[1.0, 2.0, 3.0]])
    results, actuals = evaluate(lambda x: (x * 1.1).amax(-1), [x])
    assert_covered(results[1], actuals[1])
    wrong = torch.zeros_like(x)
    wrong[0, 1] = actuals[1][0, 2]
    assert (results[1].verdict(wrong) == Element.VIOLATED)[0, 1:].all()


@pytest.mark.parametrize("split", [(0.0, 1.0), (0.5, 0.5), (0.25, 0.75)])
def test_a_tie_may_be_split_in_any_way_and_the_other_rows_may_not(split):
    x = torch.tensor([[1.0, 3.0, 3.0], [1.0, 2.0, 3.0]])
    results, actuals = evaluate(lambda x: x.amax(-1), [x])
    grad = actuals[1].sum(-1)
    actual = actuals[1].clone()
    actual[0, 1], actual[0, 2] = grad[0] * split[0], grad[0] * split[1]
    assert_covered(results[1], actual)
    actual[1] = torch.tensor([0.0, 0.5, 0.5]) * grad[1]
    assert (results[1].verdict(actual) == Element.VIOLATED)[1, 1:].all()


def welford(x: Tensor) -> Tensor:
    mean, squares = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for k, column in enumerate(x.unbind(-1)):
        difference = column - mean
        mean = mean + difference / (k + 1)
        squares = squares + difference * (column - mean)
    return squares / (x.shape[-1] - 1)


def merged(x: Tensor) -> Tensor:
    """Blocks of 4 by Welford, merged pairwise."""
    parts = []
    for block in x.split(4, -1):
        n = block.shape[-1]
        mean = block.mean(-1)
        parts.append((n, mean, (block - mean[:, None]).square().sum(-1)))
    while len(parts) > 1:
        (n, a, s), (m, b, t) = parts.pop(0), parts.pop(0)
        d = b - a
        parts.append((n + m, a + d * (m / (n + m)), s + t + d * d * (n * m / (n + m))))
    return parts[0][2] / (x.shape[-1] - 1)


@pytest.mark.parametrize(("offset", "spread"), [(0.0, 1.0), (10.0, 0.1), (100.0, 0.1), (-3.0, 30.0)])
@pytest.mark.parametrize("seed", range(3))
def test_variance_by_two_passes_welford_and_merged_blocks_is_covered(offset, spread, seed):
    x = draw(16, 200, seed=seed) * spread + offset
    (result,), _ = evaluate(lambda x: x.var(-1), [x], gradient=False)
    for actual in (welford(x), merged(x), x.var(-1)):
        assert_covered(result, actual)


def test_variance_as_a_difference_of_moments_is_violated_where_it_loses_the_digits():
    x = draw(16, 200) * 0.01 + 100
    (result,), _ = evaluate(lambda x: x.var(-1), [x], gradient=False)
    wrong = (x.square().mean(-1) - x.mean(-1).square()) * (200 / 199)
    assert bool((result.verdict(wrong) == Element.VIOLATED).any())
    assert_covered(result, welford(x))


def test_products_in_any_order_are_covered():
    x = draw(6, 40, seed=3)
    (result,), _ = evaluate(lambda x: x.prod(-1), [x], gradient=False)
    for seed in range(5):
        order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
        assert_covered(result, x[:, order].cumprod(-1)[:, -1])


def test_a_running_logsumexp_of_nothing_but_the_stand_in_for_log_zero_has_a_bound_in_float64():
    """PyTorch's derivative of logcumsumexp puts -max_finite in the place of log 0."""
    x = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    grad = torch.ones(2, 6, dtype=torch.float64)
    torch.logcumsumexp(x, -1).backward(grad)
    assert reference(lambda x: torch.logcumsumexp(x, -1)).backward(x.detach(), grad)["grad_x"].covers(x.grad).all()


def test_the_largest_of_one_irrational_value_needs_no_comparison_in_the_exact_tier():
    def spectral_norm(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.matrix_norm(x, 2)

    x = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    grad = torch.ones((), dtype=torch.float64)
    result = reference(spectral_norm).backward(x, grad)["grad_x"]
    cone = Cone(result.source.program, "grad_x", np.arange(3), result.source.inputs, result.source.integers, Budget())
    for value, ball in zip((1, 2, 4), cone.evaluate(Numbers(128)), strict=True):
        assert ball.overlaps(value / flint.arb(21).sqrt())


def test_equal_irrational_values_tie_in_the_exact_tier():
    x = torch.tensor([[0.5, 0.25, 0.5]], dtype=torch.float64)
    grad = torch.ones(1, dtype=torch.float64)
    result = reference(lambda x: (x.exp() - x.sin()).amax(-1)).backward(x, grad)["grad_x"]
    cone = Cone(result.source.program, "grad_x", np.arange(3), result.source.inputs, result.source.integers, Budget())
    share = (flint.arb(0.5).exp() - flint.arb(0.5).cos()) / 2
    assert all(ball.overlaps(e) for ball, e in zip(cone.evaluate(Numbers(128)), (share, 0 * share, share), strict=True))


@pytest.mark.parametrize("p", [0.5, -1.0, -2.5])
def test_norm_below_one_is_bounded_where_no_operand_reaches_zero(p: float) -> None:
    torch.manual_seed(0)
    x, y = torch.rand(6, 5) + 1, -torch.rand(6, 5)
    check_rule(lambda x, y: torch.linalg.vector_norm(x - y, p, -1), [x, y], [torch.float32], planted_ulp=256)


def test_norm_below_one_of_what_may_be_zero_is_not_bounded() -> None:
    x = torch.tensor([1.0, 0.1])
    result = reference(lambda x: torch.linalg.vector_norm(x - 0.1, 0.5))(x)
    assert not bool(result.enclosure.bound_or_zero().isfinite())


@pytest.mark.parametrize("p", [0.5, -1.0])
def test_norm_below_one_covers_operands_at_the_ends_of_their_bounds(p: float) -> None:
    """x / 3 three times is x within 2 u: both ends of that lie in the enclosure, a hundred times as much does not."""
    torch.manual_seed(1)
    x = torch.rand(64, 5) + 0.5
    result = reference(lambda x: torch.linalg.vector_norm(x / 3 * 3, p, -1))(x)
    for side in (-1, 1):
        moved = x.double() * (1 + side * 2.0**-24)
        right = torch.linalg.vector_norm(moved, p, -1)
        assert bool((result.verdict(right.float()) == Element.COVERED).all())
        wrong = torch.linalg.vector_norm(x.double() * (1 + side * 2.0**-17), p, -1)
        assert bool((result.verdict(wrong.float()) == Element.VIOLATED).all())
