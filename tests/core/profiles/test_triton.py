"""Kernels as Triton compiles them, simulated with the worst errors its instructions may make."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from kernels_core.check import Check
from kernels_core.reference import reference

LOG2E = np.float32(1.4426950408889634)


class Triton:
    """float32 instructions; `lean` is the part of the permitted error that each takes, in [-1, 1]."""

    def __init__(self, lean: float) -> None:
        self.lean = lean

    def _off(self, x: np.ndarray, ulps: float) -> np.ndarray:
        """Return x (float64) off by up to `ulps` from its nearest float32, in float32."""
        nearest = x.astype(np.float32)
        return (
            nearest.astype(np.float64) + np.rint(self.lean * ulps) * np.spacing(np.abs(nearest)).astype(np.float64)
        ).astype(np.float32)

    def exp(self, x: np.ndarray) -> np.ndarray:
        argument = x.astype(np.float32) * LOG2E
        return self._off(np.exp2(argument.astype(np.float64)), 2)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._off(np.float64(a) / np.float64(b), 2)

    def sigmoid(self, x: np.ndarray) -> np.ndarray:
        return self.divide(np.float32(1), np.float32(1) + self.exp(-x))

    def silu(self, x: np.ndarray) -> np.ndarray:
        return x * self.sigmoid(x)

    def silu_by_division(self, x: np.ndarray) -> np.ndarray:
        return self.divide(x, np.float32(1) + self.exp(-x))

    def softmax(self, x: np.ndarray) -> np.ndarray:
        powers = self.exp(x - x.max(-1, keepdims=True))
        return self.divide(powers, powers.sum(-1, keepdims=True, dtype=np.float32))

    def softmax_base_2(self, x: np.ndarray) -> np.ndarray:
        """As flash attention writes it: exp2(fma(x, log2 e, -fl(m log2 e)))."""
        shift = (x.max(-1, keepdims=True) * LOG2E).astype(np.float64)
        powers = self._off(np.exp2((x.astype(np.float64) * LOG2E - shift).astype(np.float32).astype(np.float64)), 2)
        return self.divide(powers, powers.sum(-1, keepdims=True, dtype=np.float32))


KERNELS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., np.ndarray]]] = {
    "exp": (lambda x: torch.exp(x), Triton.exp),
    "sigmoid": (lambda x: torch.sigmoid(x), Triton.sigmoid),
    "silu": (lambda x: torch.nn.functional.silu(x), Triton.silu),
    "silu_by_division": (lambda x: torch.nn.functional.silu(x), Triton.silu_by_division),
    "softmax": (lambda x: torch.softmax(x, -1), Triton.softmax),
    "softmax_base_2": (lambda x: torch.softmax(x, -1), Triton.softmax_base_2),
}


def outcome(name: str, profile: str, x: np.ndarray, lean: float) -> tuple[torch.Tensor, torch.Tensor]:
    plain, kernel = KERNELS[name]
    result = Check(reference(plain, name=name), {"x": torch.from_numpy(x)}, profile=profile).outputs()["output"]
    actual = torch.from_numpy(kernel(Triton(lean), x))
    off = (actual.double() - result.enclosure.mid).abs() / result.enclosure.bound_or_zero()
    return result.covers(actual), off


def arguments(scale: float) -> np.ndarray:
    generator = np.random.default_rng(int(scale))
    return np.clip(generator.standard_normal((40, 100)) * scale, -86, 86).astype(np.float32)


@pytest.mark.parametrize("lean", [-1, 0, 1])
@pytest.mark.parametrize("scale", [0.5, 5, 40])
@pytest.mark.parametrize("name", KERNELS)
def test_worst_errors_of_instructions_are_covered(name: str, scale: float, lean: float) -> None:
    covered, _ = outcome(name, "triton", arguments(scale), lean)
    assert bool(covered.all())


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "softmax"])
def test_grant_is_within_5_times_of_what_the_instructions_lose(name: str) -> None:
    largest = max(
        float(outcome(name, "triton", arguments(scale), lean)[1].max()) for scale in (1, 40) for lean in (-1, 1)
    )
    assert 0.2 < largest <= 1


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu"])
def test_ieee_does_not_grant_what_the_exponential_loses_far_from_zero(name: str) -> None:
    covered, _ = outcome(name, "ieee", arguments(40), 1)
    assert not bool(covered.all())


def test_quotient_of_2_ulp_is_covered_by_triton_alone() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.uniform(1, 2, (2, 500)).astype(np.float32)
    actual = torch.from_numpy(Triton(1).divide(a, b))
    given = {"a": torch.from_numpy(a), "b": torch.from_numpy(b)}
    quotient = reference(lambda a, b: a / b, name="quotient")
    assert bool(Check(quotient, given, profile="triton").outputs()["output"].covers(actual).all())
    assert not bool(Check(quotient, given, profile="cuda").outputs()["output"].covers(actual).any())


GRADIENTS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., np.ndarray]]] = {
    "silu": (torch.nn.functional.silu, lambda t, x: t.sigmoid(x) * (1 + x * (1 - t.sigmoid(x)))),
    "softplus": (torch.nn.functional.softplus, lambda t, x: t.sigmoid(x)),
    "logsigmoid": (torch.nn.functional.logsigmoid, lambda t, x: t.sigmoid(-x)),
}


@pytest.mark.parametrize("lean", [-1, 1])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_made_of_such_exponentials_are_covered(name: str, lean: float) -> None:
    plain, gradient = GRADIENTS[name]
    x = np.clip(arguments(10), -30, 19)
    found = reference(plain, name=name).backward(torch.from_numpy(x), torch.ones(x.shape), profile="triton")
    (result,) = found.values()
    assert bool(result.covers(torch.from_numpy(gradient(Triton(lean), x))).all())
