"""Families of values: each has a fault that shows nowhere else, and leaves correct kernels alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import exactref
from kernels_core import families
from kernels_core.battery import ITEMS, Settings
from kernels_core.battery.values import thresholds
from kernels_core.reference import Check, reference
from kernels_core.report import Outcome, Report, Verdict
from kernels_core.verify import verify
from tests.core.battery.planted import seeded

Tensor = torch.Tensor
FAMILY = [name for name in ITEMS if name.startswith("values_")]
X = seeded(6, 13)


def square(x: Tensor) -> Tensor:
    return x * x


def variance(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).square().mean(-1)


def one_pass(x: Tensor) -> Tensor:
    return x.square().mean(-1) - x.mean(-1).square()


def where(condition: Callable[[Tensor], Tensor], wrong: Callable[[Tensor], Tensor] = lambda x: 3 * x * x) -> Any:
    """Return a square that is wrong where `condition` holds."""
    return lambda x: torch.where(condition(x), wrong(x), x * x)


def no_maximum(x: Tensor) -> Tensor:
    e = x.exp()
    return e / e.sum(-1, keepdim=True)


def neighbours(x: Tensor) -> Tensor:
    return x[..., :-1] + x[..., 1:]


def in_bfloat16(x: Tensor) -> Tensor:
    close = (x[..., :-1] + x[..., 1:]).abs() < 2.0**-18
    return torch.where(close, 0.0 * x[..., 1:], x[..., :-1] + x[..., 1:])


def capped(x: Tensor) -> Tensor:
    return torch.clamp(x, -4.5, 4.5) * 2


def capped_too_late(x: Tensor) -> Tensor:
    return torch.clamp(x, -4.5, 4.75) * 2


def masked_softmax(x: Tensor) -> Tensor:
    return torch.where(x.isinf().any(-1, keepdim=True), 1 / x.shape[-1], torch.softmax(x, -1))


def rows(table: Tensor, index: Tensor) -> Tensor:
    return table[index]


class LastRowWins(torch.autograd.Function):
    """The gradient of a repeated row is that of its last use."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        found = torch.zeros(ctx.shape)
        found[index] = grad
        return found, None


def run(kernel: Any, plain: Any, item: str, **inputs: Tensor) -> Report:
    given = inputs or {"x": X}
    settings = Settings(free=list(given))
    return verify(kernel, given, reference=plain, battery=[item], settings=settings)


def small(x: Tensor) -> Tensor:
    return (x != 0) & (x.abs() < 2.0**-16)


FAULTS: dict[str, tuple[Any, Any]] = {
    "values_uniform": (where(lambda x: (x.abs() < 1).all()), square),
    "values_offset": (one_pass, variance),
    "values_huge": (no_maximum, lambda x: torch.softmax(x, -1)),
    "values_tiny": (where(small, lambda x: 0.0 * x), square),
    "values_outliers": (where(lambda x: x.abs() > 100), square),
    "values_ties": (where(lambda x: (x[..., 1:] == x[..., :-1]).any()), square),
    "values_signed_zeros": (where(lambda x: x == 0, lambda x: x / x), square),
    "values_constants": (where(lambda x: (x == x[..., :1]).all()), square),
    "values_cancelling": (in_bfloat16, neighbours),
    "values_one_hot": (where(lambda x: (x.sum(-1, keepdim=True) == 1) & (x != 0)), square),
    "values_probabilities": (where(lambda x: x == 1), square),
    "values_subnormals": (where(lambda x: x.abs() < 2.0**-126, torch.zeros_like), lambda x: x * 1.0),
    "values_thresholds": (capped_too_late, capped),
    "values_masked": (masked_softmax, lambda x: torch.softmax(x, -1)),
}
FAULTS["values_subnormals"] = (lambda x: torch.where(x.abs() < 2.0**-126, 0 * x, x * 1.0), lambda x: x * 1.0)
CORRECT: dict[str, Any] = {"values_offset": variance, "values_cancelling": neighbours, "values_thresholds": capped}


@pytest.mark.parametrize("item", FAULTS)
def test_each_family_catches_a_fault_that_the_plain_comparison_misses(item: str) -> None:
    kernel, plain = FAULTS[item]
    report = run(kernel, plain, item)
    assert {row.verdict for row in report.tensors} == {Verdict.COVERED}
    (row,) = report.battery
    assert row.outcome is Outcome.FAIL, row
    assert row.evidence.startswith(item.removeprefix("values_"))
    assert report.verdict is Verdict.VIOLATED


@pytest.mark.parametrize("item", FAULTS)
def test_each_family_leaves_a_correct_kernel_alone(item: str) -> None:
    plain = FAULTS[item][1]
    (row,) = run(lambda x: plain(x), plain, item).battery
    assert row.outcome is Outcome.PASS, row


def test_repeated_indices_catch_a_gradient_that_is_not_added_up() -> None:
    inputs = {"table": seeded(9, 4), "index": torch.randperm(9, generator=torch.Generator().manual_seed(1))[:6]}
    report = run(LastRowWins, rows, "values_repeated", **inputs)
    assert {row.verdict for row in report.tensors} == {Verdict.COVERED}
    assert report.battery[0].outcome is Outcome.FAIL
    assert run(rows, rows, "values_repeated", **inputs).battery[0].outcome is Outcome.PASS


# The entries that any floating numbers suit.
DRAWN_FREELY = (
    *("matmul", "linear", "softmax", "log_softmax", "cross_entropy", "layer_norm", "rms_norm", "attention", "gelu"),
    *("silu", "swiglu", "geglu", "relu", "sigmoid", "tanh", "softplus", "square", "cube", "instance_norm"),
    *("sparsemax", "entmax15", "linear_attention"),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", DRAWN_FREELY)
def test_the_catalogue_is_left_alone_by_every_family(name: str, dtype: torch.dtype) -> None:
    shapes = {"matmul": [(5, 7), (7, 3)], "linear": [(5, 7), (3, 7), (3,)], "layer_norm": [(5, 7), (7,), (7,)],
              "rms_norm": [(5, 7), (7,)], "attention": [(2, 5, 7)] * 3, "swiglu": [(5, 7)] * 2,
              "geglu": [(5, 7)] * 2,
              "instance_norm": [(2, 3, 5)], "linear_attention": [(5, 3)] * 3}.get(name, [(5, 7)])  # fmt: skip
    args: list[Tensor] = [seeded(*shape, seed=i).to(dtype) for i, shape in enumerate(shapes)]
    args += [torch.arange(5)] * (name == "cross_entropy")
    plain = exactref.catalogue()[name]
    inputs = dict(zip(plain.signature.parameters, args, strict=False))
    report = verify(plain.function, inputs, reference=plain, battery=["values"], settings=Settings(free=list(inputs)))
    assert report.verdict is Verdict.COVERED, [row for row in report.battery if row.outcome is Outcome.FAIL]
    assert sum(row.outcome is Outcome.PASS for row in report.battery) >= 8


def test_leaving_the_domain_is_no_fault() -> None:
    (row,) = run(lambda x: torch.where(x < 0, 7.0, x.abs().log()), torch.log, "values_ties", x=X.abs()).battery
    assert (row.outcome, row.evidence) == (
        Outcome.NOTED,
        "not judged: the reference has no value for some elements of output",
    )


def test_values_that_somebody_gave_are_not_drawn_anew() -> None:
    report = verify(square, {"x": X}, battery=["values_ties"])
    assert (report.battery[0].outcome, report.battery[0].evidence) == (Outcome.NOT_APPLICABLE, "every value is given")


class FromTheOutput(torch.autograd.Function):
    """A correct logsumexp whose gradient is recomputed from its rounded output, as fused kernels do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.logsumexp(x, -1, keepdim=True)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return grad * torch.exp(x - y)


def stable(x: Tensor) -> Tensor:
    largest = x.amax(-1, keepdim=True).detach()
    return largest + (x - largest).exp().sum(-1, keepdim=True).log()


@pytest.mark.parametrize(("battery", "verdict"), [("values", "covered"), (["values_offset"], "violated")])
def test_a_small_excess_fails_a_kernel_only_where_the_family_is_asked_for(battery: Any, verdict: str) -> None:
    report = verify(FromTheOutput, {"x": X}, reference=stable, battery=battery, settings=Settings(free=["x"]))
    assert report.verdict.value == verdict
    offset = next(row for row in report.battery if row.name == "values_offset")
    assert offset.outcome is (Outcome.NOTED if verdict == "covered" else Outcome.FAIL)


def test_gross_faults_fail_by_default() -> None:
    settings = Settings(free=["x"])
    for kernel, plain in (FAULTS["values_offset"], FAULTS["values_huge"], FAULTS["values_thresholds"]):
        assert (
            verify(kernel, {"x": X}, reference=plain, battery="values", settings=settings).verdict is Verdict.VIOLATED
        )


def test_thresholds_are_those_of_the_program() -> None:
    plain = reference(lambda x: torch.where(x > 0.3, F.softplus(x, threshold=15), x.clamp(-2.5)))
    assert {0.3, 15.0, -2.5} <= set(thresholds(Check(plain, {"x": X}).forward))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", families.FAMILIES)
def test_numbers_of_a_family_fit_the_dtype(name: str, dtype: torch.dtype) -> None:
    for shape in ((), (0,), (1,), (4, 7)):
        found = families.draw(name, shape, torch.Generator().manual_seed(0), dtype).to(dtype)
        assert found.shape == shape
        assert not bool(found.isnan().any())
        assert name == "masked" or bool(found.isfinite().all())
        assert math.prod(shape) < 28 or name in ("zeros", "ones") or len(found.unique()) > 1
