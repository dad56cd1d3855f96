"""At a kink any element of the subdifferential is accepted and counted, or PyTorch's convention is insisted on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.report import Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor
X = torch.tensor([[-1.5, 0.0, 2.0, 2.0], [0.0, 0.5, -0.5, 1.0]])
Y = torch.tensor([[-1.5, 1.0, 2.0, 0.0], [0.0, 0.25, 0.5, 1.0]])


def with_gradient(plain: Callable[..., Tensor], gradient: Callable[..., Any]) -> Any:
    """Return a Function with the values of `plain` and gradients of its own."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return plain(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return gradient(grad, *ctx.saved_tensors)

    return Kernel


def first_of_ties(grad: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_(-1, x.argmax(-1, keepdim=True), grad[:, None])


# name: (the function, its inputs, another subgradient, what is none)
KINKS: dict[str, tuple[Any, tuple[Tensor, ...], Any, Any]] = {
    "relu": (torch.relu, (X,), lambda g, x: g * (x >= 0), lambda g, x: g * (x > 0) - g * (x == 0)),
    "abs": (torch.abs, (X,), lambda g, x: g * torch.where(x >= 0, 1.0, -1.0),
            lambda g, x: g * torch.where(x == 0, 2.0, x.sign())),
    "clamp": (lambda x: x.clamp(0, 2), (X,), lambda g, x: g * ((x > 0) & (x < 2)),
              lambda g, x: g * ((x >= 0) & (x < 2)) + 1.5 * g * (x == 2)),
    "maximum": (torch.maximum, (X, Y), lambda g, x, y: (g * (x >= y), g * (x < y)),
                lambda g, x, y: (g * (x >= y), g * (x <= y) + g * (x == y))),
    "amax": (lambda x: x.amax(-1), (X,), first_of_ties, lambda g, x: g[:, None] * (x == 2) + 0 * x),
}  # fmt: skip


def run(kernel: Any, plain: Any, inputs: tuple[Tensor, ...], kinks: str) -> Any:
    return verify(kernel, dict(zip("xy", inputs, strict=False)), reference=named(plain, len(inputs)), kinks=kinks)


def named(plain: Any, count: int) -> Any:
    return (lambda x: plain(x)) if count == 1 else (lambda x, y: plain(x, y))


@pytest.mark.parametrize("name", KINKS)
def test_pytorchs_own_choice_is_covered_either_way(name: str) -> None:
    plain, inputs, _, _ = KINKS[name]
    assert run(named(plain, len(inputs)), plain, inputs, "convention").covered
    assert run(named(plain, len(inputs)), plain, inputs, "accept").covered


@pytest.mark.parametrize("name", KINKS)
def test_another_subgradient_is_accepted_and_counted_unless_the_convention_is_asked_for(name: str) -> None:
    plain, inputs, other, _ = KINKS[name]
    kernel = with_gradient(plain, other)
    accepted = run(kernel, plain, inputs, "accept")
    assert accepted.covered
    assert sum(row.kinks for row in accepted.tensors) > 0
    assert run(kernel, plain, inputs, "convention").verdict is Verdict.VIOLATED


@pytest.mark.parametrize("name", KINKS)
def test_what_is_no_subgradient_is_violated_either_way(name: str) -> None:
    plain, inputs, _, wrong = KINKS[name]
    for kinks in ("accept", "convention"):
        assert run(with_gradient(plain, wrong), plain, inputs, kinks).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [torch.nn.functional.softshrink, torch.nn.functional.hardshrink])
def test_both_sides_of_a_shrinkage_are_accepted_in_every_dtype(function: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([0.5, -0.5, 0.25, 1.0], dtype=dtype)
    for factor, covered in ((1.0, True), (0.0, True), (1.5, False), (-0.25, False)):

        def gradient(g: Tensor, x: Tensor, factor: float = factor) -> Tensor:
            return torch.where(x.abs() == 0.5, factor * g, g * (x.abs() > 0.5))

        kernel = with_gradient(lambda x: function(x, 0.5), gradient)
        assert run(kernel, lambda x: function(x, 0.5), (x,), "accept").covered == covered


@pytest.mark.parametrize("plain", [lambda x: x.sort(-1).values, lambda x: x.median(-1).values])
def test_the_convention_of_sort_and_median_at_ties_is_pytorchs(plain: Any) -> None:
    assert run(lambda x: plain(x), plain, (X,), "convention").covered
    backwards = with_gradient(plain, lambda g, x: 2 * torch.autograd.functional.vjp(plain, x, g)[1])
    assert run(backwards, plain, (X,), "convention").verdict is Verdict.VIOLATED


AT_NAN: dict[str, Any] = {
    "elu": torch.nn.functional.elu,
    "relu6": torch.nn.functional.relu6,
    "hardswish": torch.nn.functional.hardswish,
    "softshrink": torch.nn.functional.softshrink,
    "hardshrink": torch.nn.functional.hardshrink,
    "smooth_l1_loss": lambda x: torch.nn.functional.smooth_l1_loss(x, x.new_zeros(9), reduction="none"),
}


def with_gradient_at_nan(plain: Any, value: float, elsewhere: float = 1.0) -> Any:
    """Return a Function with PyTorch's gradient, but `value` times what arrives where x is NaN."""

    def gradient(g: Tensor, x: Tensor) -> Tensor:
        right = torch.autograd.functional.vjp(plain, x, g)[1] * elsewhere
        return torch.where(x.isnan(), g * value, right)

    return with_gradient(plain, gradient)


@pytest.mark.parametrize("name", AT_NAN)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_a_gradient_is_at_nan_is_left_open_and_nothing_beside_it(name: str, dtype: torch.dtype) -> None:
    plain = AT_NAN[name]
    x = torch.full(
        (9,), torch.nan, dtype=dtype
    )  # nine elements: PyTorch's vectorised kernel and the one for the rest both run
    x[5] = 0.75
    assert run(lambda x: plain(x), plain, (x,), "accept").covered
    assert run(with_gradient_at_nan(plain, math.nan), plain, (x,), "accept").covered
    assert run(with_gradient_at_nan(plain, 1.0), plain, (x,), "accept").verdict is not Verdict.VIOLATED
    assert not run(with_gradient_at_nan(plain, 17.0), plain, (x,), "accept").covered
    wrong = run(with_gradient_at_nan(plain, math.nan, 1.5), plain, (x,), "accept")
    assert [row.violated for row in wrong.tensors] == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.5])
def test_a_tie_whose_other_side_is_zero_by_zero_excuses_nothing(wrong: float, dtype: torch.dtype) -> None:
    def length(x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x, dim=-1)

    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=dtype)
    kernel = with_gradient(
        length, lambda g, x: torch.where(x == 0, wrong, torch.autograd.functional.vjp(length, x, g)[1])
    )
    assert run(kernel, length, (x,), "accept").tensors[1].violated == 2
    with_nan = torch.cat([x, torch.full((1, 2), torch.nan, dtype=dtype)])
    assert run(kernel, length, (with_nan,), "accept").tensors[1].violated == 2


def test_an_output_at_nan_is_what_the_reference_says() -> None:
    x = torch.tensor([torch.nan, 1.0])
    kernel = with_gradient(lambda x: torch.where(x > 0, x, 0.0), lambda g, x: g * (x > 0))
    assert run(kernel, torch.relu, (x,), "accept").tensors[0].violated == 1
