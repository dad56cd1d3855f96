"""Settings of the process and random number generators that a kernel leaves changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kernels_core.kernel.global_state import SETTINGS, current
from kernels_core.report import Outcome
from tests.core.battery.planted import kernel, require_caught, require_left_alone, seeded

Sine = kernel("Sine")
X = {"x": seeded(3, 4)}


def doing(something: Callable[[], Any]) -> type[torch.autograd.Function]:
    """Return a sine whose forward does something else as well."""

    class Does(Sine):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            something()
            return Sine.forward(ctx, x)

    return Does


LEFT_BEHIND: dict[str, Callable[[], Any]] = {
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "flushing of subnormal numbers": lambda: torch.set_flush_denormal(True),
    "precision of float32 products": lambda: torch.set_float32_matmul_precision("high"),
    "TF32 in cuDNN": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "autocast on the CPU": lambda: torch.set_autocast_enabled("cpu", True),
}


@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_setting_that_a_kernel_leaves_behind_is_named_and_put_back(name: str) -> None:
    before = current()
    evidence = f"the kernel leaves the {name} at "
    require_caught(doing(LEFT_BEHIND[name]), "global_state", X, evidence, reference=kernel("sine"))
    assert current() == before


def test_reading_and_writing_every_setting_agree() -> None:
    before = current()
    for name, setting in SETTINGS.items():
        setting.write(before[name])
    assert current() == before


@pytest.mark.parametrize(
    ("seed", "whose"),
    [
        (lambda: torch.manual_seed(0), "PyTorch"),
        (lambda: random.seed(0), "Python"),
        (lambda: np.random.seed(0), "NumPy"),
    ],
)
def test_reseeding_is_caught_and_the_generators_are_left_as_they_were(seed: Any, whose: str) -> None:
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    require_caught(
        doing(seed), "global_state", X, f"the kernel reseeds the random numbers of {whose}", reference=kernel("sine")
    )
    if whose == "PyTorch":
        assert torch.equal(torch.random.get_rng_state(), before[0])


def test_drawing_random_numbers_is_noted() -> None:
    row = require_left_alone(doing(lambda: torch.rand(3)), "global_state", X, Outcome.NOTED, reference=kernel("sine"))
    assert row.evidence == "the kernel draws from the random numbers of PyTorch"
    require_left_alone(Sine, "global_state", X)
