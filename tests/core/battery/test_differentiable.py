"""Outputs that are declared constants."""

from __future__ import annotations

import torch

from tests.core.battery.planted import kernel, require_caught, require_left_alone, seeded

Marks = kernel("MarksAnOutput", "state_faults.py")
X = {"x": seeded(3, 4)}


def test_output_marked_as_a_constant_is_caught() -> None:
    require_caught(
        Marks, "differentiable_outputs", X, "output[1] requires no gradient", reference=kernel("sine_and_cosine")
    )


def test_reference_that_detaches_it_too_says_that_it_is_meant() -> None:
    require_left_alone(
        Marks, "differentiable_outputs", X, reference=lambda x: (torch.sin(x), torch.cos(x).detach())
    )  # fmt: skip


def test_function_that_is_its_own_reference_means_what_it_marks() -> None:
    require_left_alone(Marks, "differentiable_outputs", X)
