"""Before the last rounding: what no rounding to 16 bits explains is suspect, what honest steps before it do is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels_core.audit import legal
from kernels_core.audit.accumulation import noise_of
from kernels_core.audit.continuous import continuous
from kernels_core.audit.unrounded import half_ulp, without_last_casts
from kernels_core.enclosure import exactly
from kernels_core.filter.arithmetic import Arithmetic
from kernels_core.filter.evaluation import evaluate_step
from kernels_core.formats import BFLOAT16, FLOAT16, Format, round_to_nearest
from kernels_core.profiles import PROFILES
from kernels_core.references import catalogue
from kernels_core.report import TensorReport, Verdict
from kernels_core.tracing.trace import trace
from kernels_core.verify import verify

Tensor = torch.Tensor
HALVES = (torch.float16, torch.bfloat16)
IEEE = Arithmetic(PROFILES["ieee"])


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def summed(x: Tensor) -> Tensor:
    return x.float().sum(0).to(x.dtype)


def row_of(kernel, reference, **inputs: Tensor) -> TensorReport:
    (row,) = verify(kernel, inputs, reference=reference, wrt=[]).tensors
    return row


def one_element_off(x: Tensor) -> Tensor:
    found = summed(x)
    found[5] = (found[5].double() * 1.01).to(x.dtype)
    return found


@pytest.mark.parametrize("dtype", HALVES)
def test_one_of_sixteen_sums_a_hundredth_too_large_is_suspect(dtype: torch.dtype) -> None:
    row = row_of(one_element_off, summed, x=normal(4096, 16, dtype=dtype))
    assert row.verdict is Verdict.SUSPECT
    assert row.precision is not None
    assert max(row.precision.bits) < 5 < row.precision.unrounded_bits
    assert "before their last rounding results are" in row.note


def test_a_thousandth_more_of_sixteen_float16_sums_is_suspect() -> None:
    row = row_of(lambda x: (x.double().sum(0) * 1.001).half(), summed, x=normal(4096, 16, seed=1))
    assert row.verdict is Verdict.SUSPECT


def accumulated(x: Tensor, order: np.ndarray) -> Tensor:
    values = x.float().numpy()[order]
    return torch.from_numpy(np.add.accumulate(values, axis=0)[-1].copy()).to(x.dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("seed", range(3))
def test_sequential_float32_sums_rounded_once_are_covered(dtype: torch.dtype, shift: int, seed: int) -> None:
    x = normal(4096, 16, seed=seed, dtype=dtype) + shift
    for order in (np.arange(4096), np.arange(4096)[::-1], np.random.default_rng(seed).permutation(4096)):
        row = row_of(lambda x, order=order: accumulated(x, order), summed, x=x)
        assert row.verdict is Verdict.COVERED, row.note


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16])
def test_no_value_further_away_than_half_an_ulp_rounds_to_a_result(fmt: Format) -> None:
    generator = torch.Generator().manual_seed(0)
    scales = torch.exp2(torch.randint(fmt.emin - 12, 8, (4096,), generator=generator).double())
    near_two = torch.tensor([2 - 2.0**-20, 2.0, 2 + 2.0**-20], dtype=torch.float64)
    values = torch.cat([torch.randn(4096, generator=generator, dtype=torch.float64) * scales, near_two])
    results = round_to_nearest(values, fmt)
    assert bool(((values - results).abs() <= half_ulp(results, fmt)).all())
    assert bool((half_ulp(results, fmt) <= results.abs().clamp(min=fmt.smallest_normal) * fmt.unit_roundoff).all())


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float16, 1.02), (torch.bfloat16, 1.01)])
def test_one_small_element_behind_the_derivative_of_a_softmax_that_is_too_large_is_suspect(
    dtype: torch.dtype, factor: float
) -> None:
    """The sum in that derivative was drawn from its worst case, and small elements weighed by what others round."""
    inputs = {"input": normal(64, 256, dtype=dtype), "weight": normal(1024, 256, seed=1, dtype=dtype),
              "target": torch.arange(64)}  # fmt: skip
    reference = catalogue()["linear_cross_entropy"]

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *given):
            ctx.save_for_backward(*given)
            return reference.function(*given)

        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                x, w, target = (t.detach().requires_grad_(t.is_floating_point()) for t in ctx.saved_tensors)
                found = torch.autograd.grad(reference.function(x, w, target), (x, w), grad)
            flat = found[0].reshape(-1)
            flat[flat.abs().sort().indices[len(flat) // 20]] *= factor
            return *found, None

    row = verify(Kernel, inputs, reference=reference).row("grad_input")
    assert row.verdict is Verdict.SUSPECT
    assert row.precision is not None
    assert max(row.precision.bits) < 5 < row.precision.unrounded_bits


def test_flushed_results_say_nothing_below_the_normal_range() -> None:
    zero = torch.zeros(1, dtype=torch.float64)
    assert half_ulp(zero, FLOAT16, flushes=True) == FLOAT16.smallest_normal


def program_of(function, x: Tensor):
    return trace(function, {"x": x})


def test_only_a_cast_from_float32_at_the_end_is_taken_off() -> None:
    x = normal(4, 4)
    wide = without_last_casts(program_of(lambda x: (x.float() * 3).half().reshape(2, 8), x))
    assert wide.output_metas["output"] == ((2, 8), torch.float32)
    assert "aten._to_copy.default" not in [step.name for step in wide.steps if step.meta.dtype is torch.float16]
    for last in (lambda x: x * 3, lambda x: (x.float() * 3).half() * 3, lambda x: x.double().half()):
        assert without_last_casts(program_of(last, x)).outputs == {}


def test_a_decision_on_computed_values_is_not_continuous_one_on_inputs_is() -> None:
    x = normal(4, 4, dtype=torch.float32)
    for steady in (lambda x: torch.where(x > 0, x * 3, 0.0), lambda x: torch.softmax(x * 3, -1).amax(-1)):
        assert continuous(program_of(steady, x)) == {"output"}
    for jumping in (lambda x: torch.where(x * 3 > 1, x, 0.0), lambda x: torch.round(x * 3), lambda x: (x * 3).sign()):
        assert continuous(program_of(jumping, x)) == set()


def test_noise_is_made_once_for_operands_that_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(legal, "noise_of", lambda *given, of=legal.noise_of: made.append(given[0]) or of(*given))
    x, noises = normal(64, 4, dtype=torch.float32), legal.Noises()
    program = program_of(lambda x: x.sum(0), x)
    shared = [legal.Evaluation(PROFILES["ieee"], seed, False, noises).evaluate(program, {"x": x}) for seed in range(3)]
    assert len(made) == 1
    alone = [legal.Evaluation(PROFILES["ieee"], seed, False).evaluate(program, {"x": x}) for seed in range(3)]
    assert all(torch.equal(one["output"], other["output"]) for one, other in zip(shared, alone, strict=True))


@pytest.mark.parametrize("one_sign", [True, False])
@pytest.mark.parametrize("log", [True, False])
def test_the_derivative_of_a_softmax_is_as_noisy_as_its_sum_in_sequence_and_not_as_its_worst_case(
    log: bool, one_sign: bool
) -> None:
    g, x = normal(16, 4096, dtype=torch.float32), normal(16, 4096, seed=1, dtype=torch.float32)
    g = g.abs() if one_sign else g
    p = torch.softmax(x, -1)
    terms = (g if log else g * p).numpy()
    t = torch.from_numpy(np.add.accumulate(terms, axis=1)[:, -1:].copy())
    honest = g - p * t if log else p * (g - t)
    operation = torch.ops.aten._log_softmax_backward_data if log else torch.ops.aten._softmax_backward_data
    inputs = {"g": g, "y": p.log() if log else p}
    program = trace(lambda g, y: operation(g, y, -1, torch.float32), inputs)
    exact = operation(*(value.double() for value in inputs.values()), -1, torch.float64)
    error = (honest - exact).square().mean().sqrt()
    (step,) = [step for step in program.steps if step.op is not None]
    operands = [value.double() for value in inputs.values()]
    value = evaluate_step(step, dict(zip(step.operands, map(exactly, inputs.values()), strict=True)), IEEE)[0]
    noise = noise_of(step, value, operands, IEEE).amplitude
    drawn = noise.square().mean().div(3).sqrt()
    assert error / 2 < drawn < value.bound.square().mean().sqrt() / 16
