"""Random programs: legal evaluations are covered, planted errors are not. benchmarks/soundness.py runs many more."""

from __future__ import annotations

import pytest
import torch

from benchmarks.random_programs import random_inputs, random_program
from benchmarks.soundness import check_program, tightness


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("block", range(8))
def test_legal_evaluations_of_random_programs_are_covered(block, dtype):
    for seed in range(1_000_000 + 10 * block, 1_000_000 + 10 * block + 10):
        found = check_program(seed, dtype)
        assert "violated" not in found or found["violated"] == 0, found
        assert found.get("covered", 0) + found.get("overflowed evaluations", 0) > 0, found


def test_legal_float64_evaluations_of_random_programs_are_covered():
    for seed in range(1_000_000, 1_000_015):
        found = check_program(seed, torch.float64, orders=1)
        assert "seed" not in found, found
        assert found.get("covered", 0) + found.get("overflowed evaluations", 0) > 0, found


@pytest.mark.parametrize("derivatives", ["double", "jvp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_legal_evaluations_of_higher_derivatives_are_covered(dtype, derivatives):
    for seed in range(2_000_000, 2_000_012):
        found = check_program(seed, dtype, orders=1, derivatives=derivatives)
        assert "seed" not in found, found
        assert found.get("covered", 0) + found.get("overflowed evaluations", 0) > 0, found


def test_errors_of_64_roundings_are_caught_in_elementwise_programs():
    caught, planted = map(sum, zip(*(tightness(seed) for seed in range(60)), strict=True))
    assert planted > 1000
    assert caught >= 0.99 * planted


def test_the_tester_is_tested():
    """A program whose kernel adds one wrong term is not covered."""
    program, _ = random_program(5)
    inputs = random_inputs(5, torch.float32)
    from kernels_core.reference import reference

    result = reference(program)(*inputs)
    assert result.covers(program(*inputs)).all()
    assert not result.covers(program(*inputs) * 1.001).all()
