"""Random programs: legal evaluations are covered, planted errors are not. benchmarks/soundness.py runs many more."""

from __future__ import annotations

import argparse
import json

import pytest
import torch

from benchmarks import soundness
from benchmarks.legal_evaluations import AnyOrder, OverflowWatch, fused_multiply_add
from benchmarks.planted_errors import planted_errors
from benchmarks.random_programs import random_inputs, random_program
from benchmarks.soundness import check_program
from kernels_core.reference import reference

NARROW = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("block", range(8))
def test_legal_evaluations_of_random_programs_are_covered(block, dtype):
    for seed in range(1_000_000 + 10 * block, 1_000_000 + 10 * block + 10):
        found = check_program(seed, dtype)
        assert "violated" not in found or found["violated"] == 0, found
        assert found.get("covered", 0) + found.get("overflowed evaluations", 0) > 0, found


@pytest.mark.parametrize(
    ("dtype", "programs"), [(torch.float64, 12), (torch.complex64, 4), (NARROW[0], 6), (NARROW[1], 6)], ids=str
)
def test_legal_evaluations_in_further_dtypes_are_covered(dtype, programs):
    for seed in range(1_000_000, 1_000_000 + programs):
        found = check_program(seed, dtype, orders=1)
        assert "seed" not in found, found
        assert found.get("covered", 0) + found.get("overflowed evaluations", 0) > 0, found


@pytest.mark.parametrize("derivatives", ["double", "jvp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_legal_evaluations_of_higher_derivatives_are_covered(dtype, derivatives):
    for seed in range(2_000_000, 2_000_012):
        found = check_program(seed, dtype, orders=1, derivatives=derivatives)
        assert "seed" not in found, found
        assert found.get("covered", 0) + found.get("overflowed evaluations", 0) > 0, found


@pytest.mark.parametrize(
    ("dtype", "programs", "share"),
    [(torch.float32, 60, 0.99), (torch.float64, 10, 0.99), (torch.complex64, 6, 0.99), (NARROW[0], 15, 0.97)],
    ids=str,
)
def test_errors_beyond_rounding_are_caught_in_elementwise_programs(dtype, programs, share):
    caught, planted = map(sum, zip(*(planted_errors(seed, dtype) for seed in range(programs)), strict=True))
    assert planted > 10 * programs
    assert caught >= share * planted


def test_the_tester_is_tested():
    """A program whose kernel adds one wrong term is not covered."""
    program, _ = random_program(5)
    inputs = random_inputs(5, torch.float32)
    result = reference(program)(*inputs)
    assert result.covers(program(*inputs)).all()
    assert not result.covers(program(*inputs) * 1.001).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_a_fused_product_is_rounded_once(dtype):
    near_one = torch.tensor([1 + 2.0 ** (-30 if dtype is torch.float64 else -13)], dtype=dtype)
    assert fused_multiply_add(near_one, near_one, -(near_one * near_one)) == (
        2.0**-60 if dtype is torch.float64 else 2.0**-26
    )


def test_an_overflow_in_the_middle_is_no_legal_evaluation_and_one_of_a_declared_cast_is():
    with OverflowWatch() as watch:
        torch.tensor([1e5]).to(torch.float8_e5m2)
    assert not watch.seen
    with OverflowWatch() as watch, AnyOrder(0):
        torch.tensor([1e30]) * 1e30
    assert watch.seen


def test_a_program_that_pytorch_refuses_after_an_overflow_is_no_legal_evaluation_and_another_error_is_none():
    class Program:
        def __init__(self, entry):
            self.matrix = torch.full((2, 2), entry)

        def first(self):
            return [torch.linalg.cholesky(self.matrix * 10)]

    assert soundness.evaluate(Program(3e38), "first", None) is None
    with pytest.raises(RuntimeError, match="could not be completed"):
        soundness.evaluate(Program(torch.inf), "first", None)


def test_a_gradient_that_divides_by_a_product_that_has_underflowed_is_no_legal_evaluation():
    def gradient(*values):
        x = torch.tensor(values, requires_grad=True)
        with OverflowWatch() as watch:
            torch.autograd.grad(torch.prod(x), x)
        return watch.gradient

    assert gradient(1e-30, 1e-16)
    assert gradient(1e-30, 1e-10)  # subnormal, so of few digits
    assert not gradient(1e-10, 0.0)
    assert not gradient(1e-10, 1e-16)


def test_another_order_of_a_sum_keeps_the_format_that_is_asked_for():
    terms = torch.full((300,), 1 + 2.0**-7, dtype=torch.bfloat16)
    for seed in range(4):
        with AnyOrder(seed):
            total = terms.sum(dtype=torch.float64)
        assert (total.dtype, total.item()) == (torch.float64, 300 * (1 + 2.0**-7))


def test_a_gradient_in_8_bit_must_not_overflow_on_its_way_and_saturates_as_a_result():
    def gradient(x, scale):
        with OverflowWatch() as watch:
            torch.autograd.grad((x.to(torch.float8_e4m3fn).float() * scale).sum(), x)
        return watch.seen, watch.gradient

    wide, narrow = torch.ones(2, requires_grad=True), torch.ones(2).to(torch.float8_e4m3fn).requires_grad_()
    assert [gradient(wide, 464.0), gradient(wide, 465.0)] == [(False, False), (False, True)]
    assert gradient(narrow, 465.0) == (False, False)


def test_a_sweep_goes_on_from_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(soundness, "check_program", lambda seed, *_, **__: {"covered": seed})
    monkeypatch.setattr(soundness, "CHUNK", 2)
    log = tmp_path / "log"
    for programs in (3, 5):
        options = argparse.Namespace(programs=programs, first=10, dtype="float32", order="first", workers=1, log=log)
        totals = soundness.swept(options)
    assert [json.loads(line)["seeds"] for line in log.read_text().splitlines()] == [2, 1, 2]
    assert totals.counts == {"programs": 5, "covered": 10 + 11 + 12 + 13 + 14}
