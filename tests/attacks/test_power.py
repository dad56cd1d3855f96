"""Attacks on power and truth: what is unknown must not become certain, what is certain must not become unknown.

A value is unknown where nothing bounds it: here x + t / t with t = 1.1 x - 1.1 x, which float64 and the exact value
make NaN, but which a kernel may return as anything. Whatever is computed from it must stay open.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from kernels_core.coverage import Element
from kernels_core.doubles import by_element
from kernels_core.errors import TraceError, UsageError
from kernels_core.exact.numbers import Numbers
from kernels_core.exact.tier import Cone
from kernels_core.reference import Check, Result, reference

NAN, INF = math.nan, math.inf
SPECIAL = torch.tensor([NAN, INF, -INF, 1.0, -1.0, 2.0, 0.0])


def unknown(x: Tensor) -> Tensor:
    """Return a tensor of which nothing is known."""
    t = x * 1.1 - x * 1.1
    return x + t / t


OPEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda x, y: torch.relu(x),
    "relu6": lambda x, y: F.relu6(x),
    "hardtanh": lambda x, y: F.hardtanh(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "clamp": lambda x, y: x.clamp(-0.3, 0.4),
    "maximum": torch.maximum,
    "minimum": lambda x, y: torch.minimum(y, x),
    "fmax": torch.fmax,
    "fmin": lambda x, y: torch.fmin(y, x),
    "amax": lambda x, y: torch.amax(x, -1),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "sort": lambda x, y: torch.sort(x, -1).values,
    "floor": lambda x, y: torch.floor(x),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_is_unknown_stays_open(name: str) -> None:
    """Neither NaN nor a number is covered or violated."""
    x, y = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)), torch.full((3, 4), 0.25)
    result = reference(lambda x, y: OPEN[name](unknown(x), y))(x, y)
    for value in (NAN, 0.5):
        verdict = result.verdict(torch.full(result.meta.shape, value))
        assert bool((verdict == Element.UNCONSTRAINED).all()), verdict


INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda x: torch.argmax(x, -1),
    "max": lambda x: torch.max(x, -1).indices,
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
    "signbit": torch.signbit,
    "greater": lambda x: x > 0,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_decisions_on_what_is_unknown_stay_open(name: str) -> None:
    """No index and no truth value is certain."""
    result = reference(lambda x: INTEGERS[name](unknown(x)))(torch.randn(3, 4))
    unsure = result.enclosure.unsure
    assert unsure is not None
    assert bool(unsure.expand(result.enclosure.shape).all())


@pytest.mark.parametrize("function", [torch.sign, lambda x: torch.copysign(torch.ones(()), x)])
def test_the_sign_of_what_is_unknown_may_be_any(function: Callable[[Tensor], Tensor]) -> None:
    """Both signs are admitted."""
    result = reference(lambda x: function(unknown(x)))(torch.randn(5))
    for value in (-1.0, 1.0):
        assert not bool((result.verdict(torch.full((5,), value)) == Element.VIOLATED).any())


def test_the_count_of_unknown_values_is_open() -> None:
    """The norm of order 0 counts values that are not zero."""
    result = reference(lambda x: torch.linalg.vector_norm(unknown(x), 0, -1))(torch.randn(2, 4))
    for value in (0.0, 4.0):
        assert not bool((result.verdict(torch.full((2,), value)) == Element.VIOLATED).any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "function", [lambda x: x.clamp_min(0.2), lambda x: x.clamp(-0.5, 0.7), lambda x: torch.lerp(x, x.flip(0), 0.3)]
)
def test_nan_of_an_exact_operand_is_certain(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    """A bound that dtype cannot hold comes with a rounding, which must not make NaN uncertain."""
    x = SPECIAL.to(dtype)
    verdict = reference(function)(x).verdict(function(x))
    assert bool((verdict[x.isnan()] == Element.COVERED).all())
    assert not bool((verdict == Element.VIOLATED).any())


@pytest.mark.parametrize(
    ("function", "slope"), [(torch.sqrt, INF), (torch.rsqrt, -INF), (lambda x: x**0.5, INF), (lambda x: 1 / x, -INF)]
)
def test_the_slope_at_a_pole_is_certain(function: Callable[[Tensor], Tensor], slope: float) -> None:
    """sqrt(0) is 0 in every implementation, so that its slope there is inf, and nothing else."""
    (gradient,) = reference(lambda x: function(x)).backward(torch.zeros(2), torch.ones(2)).values()
    assert gradient.verdict(torch.full((2,), slope)).tolist() == [Element.COVERED] * 2
    for wrong in (-slope, NAN, 0.0, 1e30):
        assert gradient.verdict(torch.full((2,), wrong)).tolist() == [Element.VIOLATED] * 2


def test_amax_of_nan_leaves_its_gradient_open() -> None:
    """PyTorch returns NaN for amax, and shares among the NaN for max."""
    x = torch.tensor([[1.0, NAN, 2.0], [1.0, 3.0, 2.0]])
    for function in (lambda x: torch.amax(x, -1), lambda x: torch.max(x).expand(2)):
        leaf = x.clone().requires_grad_()
        function(leaf).sum().backward()
        (gradient,) = reference(lambda x, f=function: f(x)).backward(x, torch.ones(2)).values()
        assert not bool((gradient.verdict(leaf.grad) == Element.VIOLATED).any())


def exact_values(result: Result) -> list[object]:
    """Return every value of the exact tier at 200 bits."""
    source = result.source
    assert source is not None
    index = np.arange(result.meta.numel)
    return list(
        Cone(source.program, source.name, index, source.inputs, source.integers, result.budget).evaluate(Numbers(200))
    )


@pytest.mark.parametrize("function", [torch.asin, torch.acos, lambda x: torch.atan2(x, x), torch.erf, torch.tanh])
def test_the_exact_tier_keeps_nan(function: Callable[[Tensor], Tensor]) -> None:
    """FLINT has intervals for asin(NaN) and atan2(NaN, x)."""
    assert exact_values(reference(lambda x: function(x))(torch.tensor([NAN])))[0].is_nan()  # type: ignore[attr-defined]


@pytest.mark.parametrize("function", [torch.relu, F.softshrink, F.hardshrink, lambda x: F.threshold(x, 0.1, 2.0)])
def test_the_exact_tier_passes_the_gradient_of_nan(function: Callable[[Tensor], Tensor]) -> None:
    """NaN is not below a threshold."""
    x = torch.tensor([NAN])
    check = Check(reference(lambda x: function(x)), {"x": x})
    gradient = check.gradients([torch.full((1,), 0.75)])["grad_x"]
    assert float(gradient.enclosure.mid) == 0.75
    assert exact_values(gradient)[0] == 0.75


def test_masked_select_has_a_cone() -> None:
    """Its mask is an index: it is neither numbered nor moved."""
    x, mask = torch.randn(4, 3), torch.rand(4, 3) > 0.4
    result = reference(lambda x, m: torch.masked_select(x * 0.3, m))(x, mask)
    assert bool(result.covers(torch.masked_select(x * 0.3, mask)).all())
    torch.testing.assert_close(result.exact, torch.masked_select(x.double() * 0.3, mask))


def test_groups_of_nothing_have_a_cone() -> None:
    """A reduction over a dimension of size 3 of an empty tensor."""
    result = reference(lambda x: x.sum(-1))(torch.zeros(0, 3))
    assert result.exact.shape == (0,)


def test_xlog1py_grants_the_flush_of_log1p(monkeypatch: pytest.MonkeyPatch) -> None:
    """log1p of a subnormal may be 0, in PyTorch's float64 function too."""
    monkeypatch.setattr(by_element, "LARGEST_CONE", 0)
    x, y = torch.tensor([3.0], dtype=torch.float64), torch.tensor([5e-324], dtype=torch.float64)
    result = reference(lambda x, y: torch.special.xlog1py(x, y))(x, y)
    assert float(result.rad_abs()) >= 1.5e-323


def test_the_deviation_of_values_beyond_float64_has_a_bound() -> None:
    """It is inf, never NaN."""
    x = torch.tensor([1.7e308, -1.7e308, 1.0], dtype=torch.float64)
    assert not bool(reference(lambda x: x.std(-1))(x).enclosure.bound_or_zero().isnan().any())


MISTAKES: dict[str, Callable[[], object]] = {
    "a dimension that is not there": lambda: reference(lambda x: torch.softmax(x, 7))(torch.randn(2)),
    "a dtype that PyTorch refuses": lambda: reference(lambda x: torch.softmax(x, 0))(torch.ones(2, dtype=torch.int64)),
    "a meta tensor": lambda: reference(lambda x: torch.softmax(x, 0))(torch.empty(2, device="meta")),
    "a missing argument": lambda: reference(lambda x, y: x + y)(torch.ones(2)),
    "a wrong shape": lambda: reference(lambda x: x + torch.ones(3))(torch.ones(2)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_one_message(mistake: str) -> None:
    """No error of PyTorch or of the engine comes through."""
    with pytest.raises((UsageError, TraceError)):
        MISTAKES[mistake]()


def test_an_absent_upstream_gradient_is_zero() -> None:
    """None means zero, also for the only output."""
    (gradient,) = reference(lambda x: x * 3).backward(torch.ones(2), None).values()
    assert bool(gradient.covers(torch.zeros(2)).all())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.roll(1), lambda x: -x, lambda x: x.clamp(-0.5, 0.5), lambda x: torch.where(x > 0, x, 0.0),
        torch.relu,
        lambda x: x.masked_fill(x > 0, 1.0), lambda x: x * 2,
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_that_is_only_moved_is_exact(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    """Nothing is rounded: its neighbour in the format is a violation."""
    x = torch.linspace(-1.5, 1.4, 8).to(dtype)
    check = Check(reference(lambda x: function(x)), {"x": x})
    grad = torch.randn(8, generator=torch.Generator().manual_seed(1)).to(dtype).to(check.cotangents["output"].dtype)
    gradient = check.gradients([grad])["grad_x"]
    exact = gradient.enclosure.mid.to(dtype)
    beside = torch.nextafter(exact, torch.full_like(exact, INF))
    assert bool(gradient.covers(exact).all())
    assert bool((gradient.verdict(beside) == Element.VIOLATED).all())
