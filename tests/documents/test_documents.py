"""The programs of the user's documents run word for word and give the documented answers."""

from __future__ import annotations

import json
import pathlib

import pytest
from typer.testing import CliRunner

from exactref_cli.app import app

KERNELS = pathlib.Path(__file__).with_name("kernels.py")


def gradcheck(name, *options):
    result = CliRunner().invoke(app, ["gradcheck", f"{KERNELS}:{name}", *options])
    return result.exit_code, result.stdout


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["Softplus", "Square", "Cube"])
def test_correct_functions_pass_in_the_dtype_that_ships(name, dtype):
    code, text = gradcheck(name, "--dtype", dtype)
    assert code == 0, text
    assert dtype in text
    assert "float64" not in text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("name", "ratio"), [("WrongSquare", "1.5"), ("WrongCube", "2/3")])
def test_wrong_factors_fail_and_the_screen_names_the_ratio(name, ratio, dtype):
    code, text = gradcheck(name, "--dtype", dtype)
    assert code == 1, text
    assert f"{ratio} times the exact value" in text


def test_clamp_passes_away_from_its_kinks():
    code, text = gradcheck("Clamp01", "--values", "x=[-0.5,0.3,0.7,1.5]", "--format", "json")
    assert code == 0, text
    assert all(row["kinks"] == 0 for case in json.loads(text)["cases"] for row in case["tensors"])


def test_clamp_passes_at_its_kinks_and_counts_them():
    code, text = gradcheck("Clamp01", "--values", "x=[-0.5,0,1,1.5]", "--format", "json")
    assert code == 0, text
    rows = {row["name"]: row for row in json.loads(text)["cases"][0]["tensors"]}
    assert rows["grad_x"]["kinks"] == 2
    assert rows["output"]["kinks"] == 0


def test_clamp_at_its_kinks_fails_where_the_convention_is_insisted_on():
    code, text = gradcheck("Clamp01", "--values", "x=[-0.5,0,1,1.5]", "--kinks", "convention")
    assert code == 1, text


def test_a_wrong_clamp_is_not_excused_by_its_kinks():
    code, text = gradcheck("WrongClamp01", "--values", "x=[-0.5,0,1,1.5]")
    assert code == 1, text
