"""Random chains of tensor-core instructions, in any order and split, lie within what their profile grants."""

import numpy as np
import pytest
import torch

from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.reference import reference
from tests.core.profiles import simulated

GENERATIONS = {
    "tensorcore-volta": (4, 23, 23),
    "tensorcore-ampere": (8, 24, 23),
    "tensorcore-hopper": (16, 25, 23),
    "fp8-fast": (32, 13, 13),
}
KINDS = ("positive", "normal", "equal", "wide", "subnormal", "cancelling")
ROWS = 48

product = reference(lambda a, b: torch.bmm(a, b), name="product")
multiply_add = reference(lambda a, b, c: torch.baddbmm(c, a, b), name="multiply_add")


def values(kind: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Values that float16 has, in float64."""
    x = generator.standard_normal(shape)
    if kind == "positive":
        x = generator.random(shape)
    elif kind == "equal":
        x = np.full(shape, generator.uniform(1, 2))
    elif kind == "wide":
        x = x * 2.0 ** generator.integers(-9, 8, shape)
    elif kind == "subnormal":
        x = x * 2.0**-19
    elif kind == "cancelling":
        half = shape[1] // 2
        x[:, half : 2 * half] = -x[:, :half]
    return x.astype(np.float16).astype(np.float64)


def operands(kind: str, inner: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    a, b = values(kind, (ROWS, inner), generator), values(kind, (ROWS, inner), generator)
    if kind == "cancelling":
        b[:, inner // 2 : inner // 2 * 2] = b[:, : inner // 2]
    order = generator.permutation(inner)
    c = generator.standard_normal(ROWS) * 2.0 ** generator.integers(-6, 6, ROWS)
    return a[:, order], b[:, order], c.astype(np.float32).astype(np.float64)


def uses(
    profile: object, dtype: torch.dtype, a: np.ndarray, b: np.ndarray, c: np.ndarray | None, actual: np.ndarray
) -> float:
    """The largest share of the grant that the actual results need; `actual` is covered where it is at most 1."""
    left, right = torch.from_numpy(a)[:, None, :].to(dtype), torch.from_numpy(b)[:, :, None].to(dtype)
    arguments = {"a": left.float(), "b": right.float()}
    if c is not None:
        arguments["c"] = torch.from_numpy(c).float()[:, None, None]
    result = Check(product if c is None else multiply_add, arguments, profile=profile).outputs()["output"]
    found = torch.from_numpy(actual).float()[:, None, None]
    assert bool(result.covers(found).all())
    off = (found.double() - result.enclosure.mid).abs()
    return float((off / result.enclosure.bound_or_zero().clamp(min=1e-300)).max())


@pytest.mark.parametrize("inner", [1, 2, 3, 16, 40, 300])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", GENERATIONS)
def test_chain_of_blocks_is_covered(profile: str, kind: str, inner: int) -> None:
    n, fraction, output = GENERATIONS[profile]
    a, b, c = operands(kind, inner, seed=inner)
    found = simulated.chain(a, b, c, n, fraction=fraction, output=output, smallest=-14)
    uses(profile, torch.float16, a, b, c, found)
    found = simulated.chain(a, b, c * 0, n, fraction=fraction, output=output, smallest=-14)
    uses(profile, torch.float16, a, b, None, found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", GENERATIONS)
def test_chains_added_in_float32_and_an_addend_at_last_are_covered(profile: str, kind: str) -> None:
    n, fraction, output = GENERATIONS[profile]
    a, b, c = operands(kind, 8 * n, seed=n)
    parts = simulated.chains(a, b, n, 2 * n, fraction=fraction, output=output, smallest=-14)
    uses(profile, torch.float16, a, b, None, parts)
    uses(profile, torch.float16, a, b, c, (parts.astype(np.float32) + c.astype(np.float32)).astype(np.float64))


@pytest.mark.parametrize("profile", GENERATIONS)
def test_accumulator_of_three_bits_less_is_violated(profile: str) -> None:
    n, fraction, output = GENERATIONS[profile]
    small = 2.0 ** (17 - fraction)  # of which the instruction keeps 2 bits beside 2^15, and the narrower one none
    a = (small * np.random.default_rng(0).uniform(1, 2, (ROWS, 127))).astype(np.float16).astype(np.float64)
    a[:, 0] = 2.0**15
    numbers = {"fraction": fraction - 3, "output": output - 3, "smallest": -14}
    found = simulated.chain(a, np.ones_like(a), np.zeros(ROWS), n, **numbers)
    given = {"a": torch.from_numpy(a).float()[:, None], "b": torch.ones(ROWS, 127, 1)}
    result = Check(product, given, profile=profile).outputs()["output"]
    assert bool((result.verdict(torch.from_numpy(found).float()[:, None, None]) == Element.VIOLATED).all())


@pytest.mark.parametrize("kind", KINDS)
def test_shorter_blocks_are_covered_where_they_are_declared(kind: str) -> None:
    a, b, c = operands(kind, 64, seed=1)
    found = simulated.chain(a, b, c, 8, fraction=25, output=23, smallest=-14)
    uses({"name": "tensorcore-hopper", "order": "blocked:8"}, torch.float16, a, b, c, found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inner", [32, 128, 200, 512])
def test_promoted_float8_chains_are_covered(kind: str, inner: int) -> None:
    a, b, _ = operands(kind, inner, seed=inner)
    found = simulated.chains(a, b, 32, 128, fraction=13, output=13, smallest=-14)
    uses("fp8-promoted", torch.float16, a, b, None, found)


@pytest.mark.parametrize(("profile", "least"), [*dict.fromkeys(GENERATIONS, 0.1).items(), ("fp8-promoted", 0.03)])
def test_grant_is_within_sight_of_what_positive_sums_lose(profile: str, least: float) -> None:
    n, fraction, output = GENERATIONS.get(profile, (32, 13, 13))
    a, b, _ = operands("positive", 2048, seed=3)
    numbers = {"fraction": fraction, "output": output, "smallest": -14}
    found = (
        simulated.chains(a, b, n, 128, **numbers)
        if profile == "fp8-promoted"
        else simulated.chain(a, b, np.zeros(ROWS), n, **numbers)
    )
    assert uses(profile, torch.float16, a, b, None, found) > least


def test_tf32_operands_and_blocks_of_4_are_covered_and_16_bit_blocks_are_not_taken_for_them() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random((2, ROWS, 512)).astype(np.float32).astype(np.float64)
    found = simulated.chain(
        simulated.tf32(a), simulated.tf32(b), np.zeros(ROWS), 4, fraction=24, output=23, smallest=-126
    )
    assert uses("tf32", torch.float32, a, b, None, found) > 0.3
    halves = a.astype(np.float16).astype(np.float64)
    found = simulated.chain(halves, halves, np.zeros(ROWS), 4, fraction=24, output=23, smallest=-126)
    assert uses("tf32", torch.float32, halves, halves, None, found) > 0.1


@pytest.mark.parametrize("profile", ["ieee", *GENERATIONS])
def test_profile_without_tf32_operands_rejects_them(profile: str) -> None:
    if profile == "fp8-fast":
        pytest.skip("13 bits lose more than TF32 operands do")
    generator = np.random.default_rng(0)
    a, b = generator.random((2, ROWS, 64)).astype(np.float32).astype(np.float64)
    found = (simulated.tf32(a) * simulated.tf32(b)).sum(1)
    result = Check(
        product,
        {"a": torch.from_numpy(a).float()[:, None], "b": torch.from_numpy(b).float()[..., None]},
        profile=profile,
    ).outputs()["output"]
    assert not bool(result.covers(torch.from_numpy(found).float()[:, None, None]).any())
