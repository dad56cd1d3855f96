"""The doctor measures what it says: its exact values are right, and each measurement has a fault that it shows."""

import math
from collections.abc import Callable

import pytest
import torch

from kernels_core.doctor import environment, examine, functions, products
from kernels_core.filter import float_environment

Tensor = torch.Tensor
NAMES = [function.name for function in functions.FUNCTIONS]


def named(name: str) -> functions.Function:
    return next(function for function in functions.FUNCTIONS if function.name == name)


def test_every_assumption_holds_on_the_machine_that_runs_the_tests() -> None:
    found = examine(points=100)
    assert [one for one in found if not one.holds] == []
    assert {one.kind for one in found} == {"arithmetic", "sum", "product", "function"}
    assert all(one.worst > 0 for one in found if one.kind == "function")


def test_every_function_of_the_accuracy_table_is_measured() -> None:
    from kernels_core.profiles import PROFILES
    from kernels_core.rules.special_functions import MEASURED

    known = {*PROFILES["ieee"].function_ulp, *MEASURED} - {"default"}
    assert known - set(NAMES) == {"polygamma", "ndtri", "log_ndtr"}  # of their own tests, tests/core/rules


@pytest.mark.parametrize("name", NAMES)
def test_result_that_is_off_by_more_than_the_limit_is_seen(name: str) -> None:
    function = named(name)
    wrong = 1 + 2.0**-52 * 2 * (functions.limit(name) + 1)  # one ulp is 2^-52 to 2^-53 of the value
    faulty = functions.dataclasses.replace(function, torch=lambda *x: function.torch(*x) * wrong)
    (right,) = functions.measured(50, functions=[function])
    (found,) = functions.measured(50, functions=[faulty])
    assert right.holds
    assert not found.holds
    assert found.where


def test_fault_of_the_scalar_code_alone_is_seen() -> None:
    def faulty(x: Tensor) -> Tensor:
        return torch.exp(x) if x.is_contiguous() else torch.exp(x) * (1 + 2.0**-48)

    (found,) = functions.measured(50, functions=[functions.dataclasses.replace(named("exp"), torch=faulty)])
    assert not found.holds


def test_result_that_is_not_finite_is_seen() -> None:
    function = functions.dataclasses.replace(named("exp"), torch=lambda x: torch.exp(x) * math.nan)
    assert functions.measured(10, functions=[function])[0].worst == math.inf


def in_float32(a: Tensor, b: Tensor) -> Tensor:
    return (a.float() @ b.float()).double()


def strassen(a: Tensor, b: Tensor) -> Tensor:
    """One step of Strassen's algorithm: accurate in norm, not in every element."""
    if min(*a.shape, *b.shape) < 2 or a.shape[0] % 2 or a.shape[1] % 2 or b.shape[1] % 2:
        return torch.mm(a, b)
    m, k, n = a.shape[0] // 2, a.shape[1] // 2, b.shape[1] // 2
    p, q, r, s = a[:m, :k], a[:m, k:], a[m:, :k], a[m:, k:]
    t, u, v, w = b[:k, :n], b[:k, n:], b[k:, :n], b[k:, n:]
    x1, x2, x3, x4 = (p + s) @ (t + w), (r + s) @ t, p @ (u - w), s @ (v - t)
    x5, x6, x7 = (p + q) @ w, (r - p) @ (t + u), (q - s) @ (v + w)
    return torch.cat([torch.cat([x1 + x4 - x5 + x7, x3 + x5], 1), torch.cat([x2 + x4, x1 - x2 + x3 + x6], 1)])


@pytest.mark.parametrize("product", [in_float32, strassen])
def test_product_that_leaves_the_bound_of_an_element_is_seen(
    product: Callable[[Tensor, Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_SHAPES", ((64, 64, 64),))
    assert products.measured()[0].holds
    monkeypatch.setattr(products, "multiply", product)
    assert not products.measured()[0].holds


def test_error_of_an_element_is_counted_exactly() -> None:
    a, b = torch.tensor([1.0, 1.0]).double(), torch.tensor([1.0, 2.0**-53]).double()
    assert products._ratio(1.0, a, b) == pytest.approx(0.5, rel=1e-12)  # 2^-53 of 2 * 2^-53 * (1 + 2^-53)
    assert products._ratio(math.nan, a, b) == math.inf
    assert products._ratio(0.0, torch.zeros(2).double(), b) == 0.0


@pytest.fixture
def flushed():
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def test_flushed_subnormals_are_seen_in_the_thread_that_flushes(flushed: None) -> None:
    assert 1 in float_environment.broken()
    assert 0 not in float_environment.broken()
    (rounding, subnormals, _) = environment.measured()
    assert rounding.holds
    assert not subnormals.holds
    assert "main thread" in subnormals.where
    assert "torch.set_flush_denormal" in subnormals.where


def test_arithmetic_of_this_process_is_as_assumed_without_it() -> None:
    assert float_environment.broken() == ()
    assert environment.in_pytorchs_threads() == ()
    assert environment.in_new_threads() == ()


def directed(up: bool) -> Callable[[list[Tensor]], tuple[Tensor, ...]]:
    right = float_environment.evaluated

    def evaluated(operands: list[Tensor]) -> tuple[Tensor, ...]:
        sums, *rest = right(operands)
        a, b = operands[:2]
        value = sums.view(torch.float64)
        toward = torch.full_like(value, math.inf if up else -math.inf)
        lost = (b - (value - a)) * (1.0 if up else -1.0) > 0
        return torch.where(lost, torch.nextafter(value, toward), value).view(torch.int64), *rest

    return evaluated


@pytest.mark.parametrize("up", [True, False])
def test_directed_rounding_is_told_from_rounding_to_nearest(up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float_environment, "evaluated", directed(up))
    assert float_environment.broken() == (0,)
