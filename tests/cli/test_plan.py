"""Specs become cases: every combination of the matrix, with sizes, dtypes and targets put in."""

from pathlib import Path
from typing import Any

import pytest
import torch

from exactref_cli.plan import from_specs, select, spec_files
from exactref_cli.run import Case
from kernels_core.errors import SpecError, UsageError


def cases(folder: Path, *lines: str) -> list[Case]:
    text = "\n    ".join(["version: 1\nchecks:\n  - name: k\n    function: kernels.py:Square", *lines])
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    return from_specs([Path("spec.yaml")])


def drawn(case: Case) -> dict[str, Any]:
    return case.inputs().values


def test_every_combination_of_the_matrix_is_a_case(folder: Path) -> None:
    found = cases(
        folder,
        "dims: {M: 4, K: 3}",
        "inputs: {x: {shape: [M, K]}, i: {shape: [M], dtype: int64, below: K}, n: {value: 1}}",
        "matrix: {dtype: [float32, bfloat16], M: [1, 5], n: [7]}",
    )
    assert [case.name for case in found] == [
        f"k[dtype={dtype},M={size},n=7]" for dtype in ("float32", "bfloat16") for size in (1, 5)
    ]
    last = drawn(found[-1])
    assert (last["x"].dtype, last["x"].shape) == (torch.bfloat16, (5, 3))
    assert (last["i"].dtype, last["i"].shape, last["n"]) == (torch.int64, (5,), 7)
    assert int(last["i"].max()) < 3


def test_seed_device_and_profile_can_be_axes(folder: Path) -> None:
    found = cases(
        folder, "inputs_from: kernels.py:make", "matrix: {seed: [1, 2], device: [cpu, cuda], profile: [ieee]}"
    )
    assert [(case.seed, case.device, case.profile) for case in found] == [
        (1, "cpu", "ieee"), (1, "cuda", "ieee"), (2, "cpu", "ieee"), (2, "cuda", "ieee"),
    ]  # fmt: skip
    assert not torch.equal(drawn(found[0])["x"], drawn(found[2])["x"])


def test_profile_follows_the_device_where_nobody_says(folder: Path) -> None:
    found = cases(folder, "inputs_from: kernels.py:make", "matrix: {device: [cpu, 'cuda:1']}")
    assert [case.profile for case in found] == [None, None]


def test_own_inputs_are_cast_to_the_dtype_of_the_case(folder: Path) -> None:
    found = cases(folder, "inputs_from: kernels.py:make", "matrix: {dtype: [float16]}")
    assert drawn(found[0])["x"].dtype == torch.float16
    assert drawn(found[0])["n"] == 2


def test_requires_grad_says_what_is_differentiated(folder: Path) -> None:
    (case,) = cases(folder, "inputs: {x: {shape: [2]}, y: {shape: [2], requires_grad: false}}")
    assert case.inputs().wrt == ("x",)


def test_listed_values_need_no_shape(folder: Path) -> None:
    (case,) = cases(folder, "inputs: {x: {values: [[0, 1, 0.5]]}}")
    assert torch.equal(drawn(case)["x"], torch.tensor([[0, 1, 0.5]]))


@pytest.mark.parametrize("number", [0, 0.5, -2])
def test_a_number_is_the_value_of_a_tensor_without_dimensions(folder: Path, number: float) -> None:
    for given in (f"values: {number}", f"values: {number}, shape: []"):
        [case] = cases(folder, "inputs: {x: {" + given + "}}")
        assert torch.equal(drawn(case)["x"], torch.tensor(float(number)))


def test_lists_tuples_and_dicts_hold_inputs_of_their_own(folder: Path) -> None:
    (case,) = cases(
        folder,
        "dims: {M: 4}",
        "inputs:",
        "  xs: {list: [{shape: [M]}, {shape: [2], values: ones, requires_grad: false}]}",
        "  state: {tuple: [{value: 3}, {dict: {h: {shape: [M, 1], dtype: int64, below: M}}}]}",
    )
    found = drawn(case)
    assert [t.shape for t in found["xs"]] == [(4,), (2,)]
    assert torch.equal(found["xs"][1], torch.ones(2))
    assert found["state"][0] == 3
    assert found["state"][1]["h"].shape == (4, 1)
    assert case.inputs().wrt == ("xs[0]",)


def test_repeat_command_selects_the_case(folder: Path) -> None:
    found = cases(folder, "inputs_from: kernels.py:make", "matrix: {seed: [1, 2]}")
    assert found[1].repeat == "exactref check spec.yaml --case 'k[seed=2]'"
    assert select(found, ["k[seed=2]"]) == [found[1]]
    assert select(found, []) == found
    with pytest.raises(UsageError, match=r"no case is called 'k\[seed=3\]', did you mean"):
        select(found, ["k[seed=3]"])


def test_targets_that_cannot_be_loaded_are_reported_together(folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        cases(
            folder, "reference: broken.py:f", "inputs_from: kernels.py:mak", "profile: eeee", "matrix: {profile: [x]}"
        )
    reference, inputs, profile, axis = caught.value.mistakes
    assert reference.startswith(
        "spec.yaml:5: checks[0].reference: broken.py could not be imported (from broken.py:f)\n"
    )
    assert reference.endswith("ZeroDivisionError: division by zero")
    assert inputs.startswith(
        'spec.yaml:6: checks[0].inputs_from: kernels.py has no attribute mak, did you mean "make"?'
    )
    assert profile.startswith("spec.yaml:7: checks[0].profile: wanted one of ieee, cuda")
    assert axis.startswith("spec.yaml:8: checks[0].matrix.profile: wanted one of ieee, cuda")


def test_folders_are_searched_for_specs(folder: Path) -> None:
    for name in ("b.yaml", "a/c.yml", "a/notes.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    assert spec_files([Path("."), Path("b.yaml")]) == [Path("a/c.yml"), Path("b.yaml")]


def test_free_dims_are_varied_for_the_battery_and_those_of_the_matrix_are_not(folder: Path) -> None:
    (found,) = cases(
        folder,
        "dims: {M: 16, K: 3, L: 2}",
        "inputs: {x: {shape: [M, K]}, i: {shape: [L], dtype: int64, values: [0, 1]}}",
        "matrix: {K: [3]}",
        "battery: all",
    )
    assert [size.label for size in found.sizes] == ["M=1", "M=263", "M=0", "M=17", "M=15", "M=19"]
    values, _ = found.sizes[3].inputs()
    assert values["x"].shape == (17, 3)


def test_free_dims_are_once_equal_in_the_place_of_the_last_size(folder: Path) -> None:
    (found,) = cases(folder, "dims: {M: 16, N: 8}", "inputs: {x: {shape: [M, N]}}", "battery: all")
    labels = [size.label for size in found.sizes]
    assert labels[:4] == ["M=1", "N=1", "M=N=8", "M=263"]
    assert (len(labels), labels[-1]) == (12, "M=19")
    assert found.sizes[2].inputs()[0]["x"].shape == (8, 8)
