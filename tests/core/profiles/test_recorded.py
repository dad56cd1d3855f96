"""Recorded hardware: the matching profile covers every row and is near what was seen; another rejects."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.reference import reference
from kernels_core.result import Result
from tests.core.profiles.simulated import block

DATA = Path(__file__).parent / "data"


class Recorded(NamedTuple):
    """A file, the profile that matches it, and the numbers of its instruction."""

    name: str
    profile: object
    fraction: int
    output: int
    smallest: int


HOPPER_TF32 = {"name": "tensorcore-hopper", "matmul_input": "tf32"}
FILES = [
    Recorded("v100_fp16", "tensorcore-volta", 23, 23, -14),
    Recorded("a100_fp16", "tensorcore-ampere", 24, 23, -14),
    Recorded("a100_bf16", "tensorcore-ampere", 24, 23, -126),
    Recorded("a100_tf32", "tf32", 24, 23, -126),
    Recorded("h100_fp16", "tensorcore-hopper", 25, 23, -14),
    Recorded("h100_bf16", "tensorcore-hopper", 25, 23, -126),
    Recorded("h100_tf32", HOPPER_TF32, 25, 23, -126),
    Recorded("h100_e4m3", "fp8-fast", 13, 13, -6),
    Recorded("h100_e5m2", "fp8-fast", 13, 13, -14),
]
FLOAT8 = [file.name for file in FILES if file.profile == "fp8-fast"]

plain = reference(lambda a, b, c: torch.baddbmm(c, a, b), name="multiply_add")


def rows(name: str) -> tuple[torch.Tensor, ...]:
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as file:
        a, b, c, d = (torch.from_numpy(file[key]) for key in "abcd")
    return a[:, None, :], b[:, :, None], c[:, None, None], d[:, None, None]


def granted(name: str, profile: object) -> tuple[Result, torch.Tensor]:
    a, b, c, d = rows(name)
    return Check(plain, {"a": a, "b": b, "c": c}, profile=profile).outputs()["output"], d


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_matching_profile_covers_every_row_and_is_within_4_times_of_the_largest_error(file: Recorded) -> None:
    result, actual = granted(file.name, file.profile)
    assert bool(result.covers(actual).all())
    used = (actual.double() - result.enclosure.mid).abs() / result.enclosure.bound_or_zero()
    assert 0.25 < float(used.max()) <= 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_simulated_instruction_is_the_recorded_one_bit_for_bit(file: Recorded) -> None:
    a, b, c, d = (t.reshape(5000, -1).double().numpy() for t in rows(file.name))
    found = block(a, b, c[:, 0], fraction=file.fraction, output=file.output, smallest=file.smallest)
    assert np.array_equal(found, d[:, 0])


@pytest.mark.parametrize("profile", ["cuda", "triton"])
@pytest.mark.parametrize("name", [file.name for file in FILES if file.name not in FLOAT8])
def test_profile_of_any_generation_covers_all_of_them(name: str, profile: str) -> None:
    result, actual = granted(name, profile)
    assert bool(result.covers(actual).all())


@pytest.mark.parametrize("name", FLOAT8)
def test_promoted_float8_covers_a_single_instruction(name: str) -> None:
    result, actual = granted(name, "fp8-promoted")
    assert bool(result.covers(actual).all())


@pytest.mark.parametrize("profile", ["ieee", "cuda", "triton", "tf32", "tensorcore-hopper"])
@pytest.mark.parametrize("name", FLOAT8)
def test_profile_that_declares_no_13_bit_accumulator_rejects_the_float8_rows(name: str, profile: str) -> None:
    result, actual = granted(name, profile)
    assert int((result.verdict(actual) == Element.VIOLATED).sum()) > 1000
