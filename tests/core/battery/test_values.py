"""Families of values: each has a fault that shows nowhere else, and leaves correct kernels alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import exactref
from kernels_core.battery import Settings, thresholds
from kernels_core.declared import as_rounded
from kernels_core.enclosure import Enclosure
from kernels_core.formats import format_of
from kernels_core.inputs import families
from kernels_core.reference import Check, reference
from kernels_core.report import BatteryRow, Outcome, Verdict
from kernels_core.verify import verify
from tests.core.battery.planted import kernel, require_left_alone, seeded

Tensor = torch.Tensor
X = seeded(6, 13)
square, variance = kernel("square", "value_faults.py"), kernel("variance", "value_faults.py")


def run(function: Any, plain: Any, item: str, x: Tensor = X) -> BatteryRow:
    (row,) = verify(function, {"x": x}, reference=plain, battery=[item], settings=Settings(free=["x"])).battery
    return row


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


def test_elements_outside_of_the_domain_are_not_judged_and_counted() -> None:
    row = run(lambda x: torch.where(x < 0, 7.0, x.log()), torch.log, "values_ties", X.abs())
    assert row.outcome is Outcome.PASS
    assert row.evidence == "108 of 156 elements covered, 48 without a value"


def test_family_that_is_mostly_without_a_value_does_not_pass() -> None:
    row = run(lambda x: (x + 0).acosh(), torch.acosh, "values_uniform", X.abs() + 1)
    assert (row.outcome, row.evidence) == (Outcome.NOTED, "0 of 156 elements covered, 156 without a value")


def test_wrong_value_inside_the_domain_is_caught_beside_elements_without_one() -> None:
    row = run(lambda x: torch.where(x == 2, 0.5, x.log()), torch.log, "values_ties", X.abs())
    assert row.outcome is Outcome.FAIL


def test_values_that_somebody_gave_are_not_drawn_anew() -> None:
    report = verify(square, {"x": X}, battery=["values_ties"], settings=Settings())
    assert (report.battery[0].outcome, report.battery[0].evidence) == (Outcome.NOT_APPLICABLE, "every value is given")


def test_values_of_a_program_are_drawn_anew_within_their_range_and_faults_are_noted() -> None:
    faulty, given = kernel("doubles_ties", "value_faults.py"), [torch.linspace(-3, 3, 78)]
    report = exactref.check(faulty, given, reference=square, battery="values")
    rows = {row.name: row for row in report.battery}
    assert report.verdict is Verdict.COVERED
    assert rows["values_ties"].outcome is Outcome.NOTED
    assert rows["values_ties"].evidence.startswith("ties, x drawn in the range given: ")
    assert rows["values_offset"].evidence == "the given values have another range"
    assert exactref.check(faulty, given, reference=square, battery=["values_ties"]).verdict is Verdict.VIOLATED


def test_kernel_that_raises_at_values_that_it_was_not_given_is_not_judged() -> None:
    def increasing(x: Tensor) -> Tensor:
        if bool((x[1:] <= x[:-1]).any()):
            raise ValueError("x must increase")
        return x * x

    report = exactref.check(increasing, [torch.linspace(-3, 3, 78)], reference=square, battery="values")
    assert report.verdict is Verdict.COVERED
    ties = next(row for row in report.battery if row.name == "values_ties")
    assert ties.evidence == "not judged: forward raised ValueError: x must increase"


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


@pytest.mark.parametrize(("faulty", "plain"), [
    ("one_pass_variance", "variance"), ("softmax_without_maximum", "softmax"), ("capped_too_late", "capped"),
    ("flushes_tiny", "square"), ("flushes_subnormals", "twice"), ("drops_what_cancels", "neighbours"),
])  # fmt: skip
def test_what_no_rounding_of_the_inputs_explains_fails_by_default(faulty: str, plain: str) -> None:
    settings, functions = Settings(free=["x"]), [kernel(name, "value_faults.py") for name in (faulty, plain)]
    report = verify(functions[0], {"x": X}, reference=functions[1], battery="values", settings=settings)
    assert report.verdict is Verdict.VIOLATED


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_inputs_rounded_once_more_are_enclosures_in_float64(dtype: torch.dtype) -> None:
    given = torch.tensor([[1.5, -3.0], [torch.inf, 0.0]], dtype=dtype)
    found = as_rounded(given)
    assert isinstance(found, Enclosure)
    assert found.bound is not None
    assert found.bound.dtype is torch.float64
    assert found.bound.tolist() == [[3.0 * format_of(dtype).unit_roundoff] * 2, [0.0, found.bound[0, 0]]]


def test_product_that_flushes_small_numbers_is_violated() -> None:
    def flushes(x: Tensor) -> Tensor:
        return torch.where(x.abs() < 2.0**-16, 0 * x, x) @ x.mT

    report = verify(flushes, {"x": X}, reference=lambda x: x @ x.mT, battery="values", settings=Settings(free=["x"]))
    assert next(row for row in report.battery if row.name == "values_tiny").outcome is Outcome.FAIL


def relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)


class RectifiesUpTo(torch.autograd.Function):
    """The gradient ends at 7.25, a number that only the kernel knows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < 7.25), grad, 0.0)


def test_threshold_that_only_the_kernel_has_is_found_in_its_code() -> None:
    assert 7.25 in set(thresholds.of_code(RectifiesUpTo))
    assert run(RectifiesUpTo, relu, "values_thresholds").outcome is Outcome.FAIL
    assert run(lambda x: x.relu(), relu, "values_thresholds").outcome is Outcome.PASS


def test_points_lie_on_both_sides_of_each_constant() -> None:
    found = thresholds.points([3.0, 3.0, -3.0, 1e9], torch.float32, 2.0**20).tolist()
    below, above = 3.0 - 2.0**-22, 3.0 + 2.0**-22
    assert found == sorted(sign * p for sign in (1, -1) for p in (2.75, below, 3.0, above, 3.25))


def test_thresholds_are_those_of_the_program() -> None:
    plain = reference(lambda x: torch.where(x > 0.3, F.softplus(x, threshold=15), x.clamp(-2.5)))
    assert {0.3, 15.0, -2.5} <= set(thresholds.of_program(Check(plain, {"x": X}).forward))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", families.FAMILIES)
def test_numbers_of_a_family_fit_the_dtype(name: str, dtype: torch.dtype) -> None:
    for shape in ((), (0,), (1,), (4, 7)):
        found = families.draw(name, shape, torch.Generator().manual_seed(0), dtype).to(dtype)
        assert found.shape == shape
        assert not bool(found.isnan().any())
        assert name == "masked" or bool(found.isfinite().all())
        assert math.prod(shape) < 28 or name in ("zeros", "ones") or len(found.unique()) > 1


def test_mixed_rows_are_of_one_family_each_and_every_family_is_there() -> None:
    drawn = families.draw("mixed", (240, 50), torch.Generator().manual_seed(3), torch.float32)
    rows = [drawn[place::12] for place in range(12)]
    assert drawn.isfinite().all()
    assert sum(bool((own == own[:, :1]).all()) for own in rows) == 1  # constants
    assert sum(bool(((own == 0).sum(-1) == 49).all()) for own in rows) == 1  # one_hot
    assert sum(bool((own.abs().amax(-1) < 2.0**-10).all()) for own in rows) == 1  # tiny
    assert sum(bool(((own - 2.0**12).abs() < 10).all()) for own in rows) == 1  # offset
    assert sum(bool((own == own.round()).all()) for own in rows) == 2  # ties and one_hot


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0), (0, 4), (2, 3, 4)])
def test_mixed_values_have_every_shape_and_follow_the_seed(shape: tuple[int, ...]) -> None:
    first, again, other = (
        families.draw("mixed", shape, torch.Generator().manual_seed(seed), torch.float16) for seed in (1, 1, 2)
    )
    assert first.shape == shape
    assert torch.equal(first, again)
    assert not first.numel() or not torch.equal(first, other)


def test_kernel_that_raises_where_the_reference_raises_is_not_judged() -> None:
    row = run(torch.linalg.inv, torch.linalg.inv, "values_zeros", torch.randn(4, 4))
    assert row.outcome is Outcome.NOTED, row
    assert "the reference raises too: _LinAlgError" in row.evidence


def test_kernel_that_alone_raises_fails() -> None:
    def refuses_zeros(x: Tensor) -> Tensor:
        if not bool(x.any()):
            raise ZeroDivisionError("only zeros")
        return x * x

    row = run(refuses_zeros, lambda x: x * x, "values_zeros")
    assert row.outcome is Outcome.FAIL, row
    assert "only zeros" in row.evidence


class QuotientOfSquares(torch.autograd.Function):
    """An atan2 whose gradient is 0 / 0 where PyTorch's is 0."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.atan2(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, b = ctx.saved_tensors
        return grad * b / (a * a + b * b), -grad * a / (a * a + b * b)


def test_nan_in_place_of_a_number_is_explained_by_no_rounding() -> None:
    inputs = {"a": X, "b": X.flip(0)}
    report = verify(
        QuotientOfSquares, inputs, reference=torch.atan2, battery="values", settings=Settings(free=["a", "b"])
    )
    assert next(row for row in report.battery if row.name == "values_zeros").outcome is Outcome.FAIL


def test_rows_below_what_a_maximum_begins_with_are_drawn() -> None:
    def largest(x: Tensor) -> Tensor:
        return torch.cat([x, torch.full_like(x[:, :1], -1e4)], 1).amax(1)

    assert run(largest, lambda x: x.amax(1), "values_huge").outcome is Outcome.FAIL
    assert run(lambda x: x.amax(1), lambda x: x.amax(1), "values_huge").outcome is Outcome.PASS


def _masked_inputs() -> dict[str, torch.Tensor]:
    return {"x": seeded(4, 6), "mask": seeded(4, 6, seed=1) > -0.5}


def test_given_booleans_are_drawn_anew_and_what_fails_is_noted() -> None:
    wrong, reference = kernel("DividesByNothing", "value_faults.py"), kernel("mean_of_kept", "value_faults.py")
    report = verify(wrong, _masked_inputs(), reference=reference, battery="all")
    row = next(row for row in report.battery if row.name == "values_masks")
    assert row.outcome is Outcome.NOTED
    assert "mask all False: 4 of 4 elements of output violated" in row.evidence


def test_a_mask_that_the_kernel_raises_for_is_refused() -> None:
    def wants_some(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not mask.any():
            raise ValueError("nothing is kept")
        return x * mask

    row = require_left_alone(wants_some, "values_masks", _masked_inputs(), Outcome.REFUSED, free=("x", "mask"),
                             reference=lambda x, mask: x * mask)  # fmt: skip
    assert row.evidence == "mask all False: forward raised ValueError: nothing is kept"
