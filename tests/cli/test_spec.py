"""Every mistake of a spec is reported at once, with its line, what was wanted, what was found and the nearest name."""

from pathlib import Path

import pytest

from exactref_cli.spec import read
from kernels_core.errors import SpecError

VALID = """\
version: 1
checks:
  - name: matmul
    function: kernels.py:Matmul
    reference: exactref:matmul
    device: cpu
    seed: 3
    dims: {M: 16, K: 32, N: 8}
    inputs:
      A: {shape: [M, K], dtype: float32}
      B: {shape: [K, N], requires_grad: true, values: uniform}
      index: {shape: [N], dtype: int64, values: index, below: M}
      eps: {value: 1e-5}
      given: {values: [[1, 2.5], [-3, .inf]]}
    matrix: {dtype: [float32, bfloat16], M: [1, 16], eps: [1, 2]}
    battery: none
    kinks: convention
  - function: kernels.py:Square
    inputs_from: kernels.py:make
    reference_backward: kernels.py:plain
    surrogate: true
    profile: ieee
    battery: all
    expect: violated
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(written(folder, text))
    prefix = f"{folder}/spec.yaml:"
    assert all(mistake.startswith(prefix) for mistake in caught.value.mistakes)
    return [mistake.removeprefix(prefix) for mistake in caught.value.mistakes]


def check(*lines: str) -> str:
    """Return a spec of one check that has a function; its further lines begin on line 4."""
    return "\n    ".join(["version: 1\nchecks:\n  - function: kernels.py:Square", *lines]) + "\n"


def test_every_key_of_the_format_is_read(tmp_path: Path) -> None:
    first, second = read(written(tmp_path, VALID)).checks
    assert first.inputs is not None
    assert (first.title, second.title) == ("matmul", "kernels.py:Square")
    assert first.inputs["eps"].value == 1e-5
    assert first.inputs["given"].values == [[1, 2.5], [-3, float("inf")]]
    assert first.inputs["B"].requires_grad is True
    assert (second.surrogate, second.expect, second.battery) == (True, "violated", "all")


def test_all_mistakes_of_a_file_are_reported_in_order(tmp_path: Path) -> None:
    text = """\
version: 2
checks:
  - name: one
    fucntion: kernels.py:Square
    inputs:
      A: {shape: [M, -1], dtype: flot32}
      C: {value: 3, dtype: float32}
  - name: two
    function: kernels
    seed: true
    inputs: {x: {shape: [3], values: norml}, y: {shape: [Q]}}
  - 3
extra: 1
"""
    floats = "float64, float32, bfloat16, float16, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz"
    floats += ", complex64, complex128"
    assert mistakes(tmp_path, text) == [
        "1: version: wanted 1, found 2",
        '3: checks[0]: wanted a key "function", found none',
        '4: checks[0].fucntion: unknown key, did you mean "function"?',
        f"6: checks[0].inputs.A.dtype: wanted one of {floats}, int64, int32, int16, int8, uint8, bool, "
        "found 'flot32', did you mean \"float32\"?",
        "6: checks[0].inputs.A.shape[1]: wanted a size (a whole number, 0 or more), found -1",
        '7: checks[0].inputs.C.dtype: "value" is a plain value and stands alone, found "dtype" beside it',
        "9: checks[1].function: wanted module:attr or path.py:attr, found 'kernels'",
        "10: checks[1].seed: wanted a size (a whole number, 0 or more), found True",
        "11: checks[1].inputs.x.values: wanted one of normal, uniform, positive, zeros, zero_rows, ones, offset, "
        "huge, tiny, subnormals, outliers, ties, signed_zeros, constants, cancelling, one_hot, probabilities, masked, "
        "mixed, index, mask, exhaustive, "
        "found 'norml', did you mean \"normal\"?",
        "11: checks[1].inputs.y.shape[0]: no size is called 'Q'",
        "12: checks[2]: wanted a mapping, found 3",
        "13: extra: unknown key",
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["inputs: {xs: {list: [{shape: [2]}, {shape: [Q]}]}}"],
            "4: checks[0].inputs.xs.list[1].shape[0]: no size is called 'Q'",
        ),
        (
            ["inputs: {xs: {list: [{shap: [2]}]}}"],
            '4: checks[0].inputs.xs.list[0].shap: unknown key, did you mean "shape"?',
        ),
        (
            ["inputs: {xs: {tuple: [{shape: [2]}], dtype: float32}}"],
            '4: checks[0].inputs.xs.dtype: "tuple" holds inputs of their own and stands alone, found "dtype" beside it',
        ),
        ([], '3: checks[0]: wanted either "inputs" or "inputs_from", found neither'),
        (
            ["inputs: {x: {shape: [2]}}", "inputs_from: kernels.py:make"],
            '3: checks[0]: wanted either "inputs" or "inputs_from", found both',
        ),
        (
            ["inputs: {x: {}}"],
            '4: checks[0].inputs.x: wanted "shape", a list of "values", a plain "value", or a "list"',
        ),
        (
            ["dims: {ROWS: 3}", "inputs:", "  x: {shape: [ROW]}"],
            "6: checks[0].inputs.x.shape[0]: no size is called 'ROW', did you mean \"ROWS\"?",
        ),
        (
            ["inputs: {x: {values: [[1, 2], [3]]}}"],
            "4: checks[0].inputs.x.values: wanted lists of one length, found several",
        ),
        (
            ["inputs: {x: {values: [1, 2], shape: [3]}}"],
            "4: checks[0].inputs.x.values: wanted numbers of shape [3], found shape [2]",
        ),
        (
            ["inputs: {x: {values: 1, shape: [3]}}"],
            "4: checks[0].inputs.x.values: wanted numbers of shape [3], found shape []",
        ),
        (["inputs: {x: {values: [1, a]}}"], "4: checks[0].inputs.x.values: wanted numbers, found 'a'"),
        (
            ["inputs: {x: {shape: [2], values: index}}"],
            "4: checks[0].inputs.x.values: wanted values for float32, found 'index'",
        ),
        (
            ["inputs: {x: {shape: [2], dtype: int64, requires_grad: true}}"],
            "4: checks[0].inputs.x.requires_grad: wanted a floating dtype, found int64",
        ),
        (
            ["inputs_from: kernels.py:make", "dims: {M: 3}"],
            '5: checks[0].dims: "dims" belong to "inputs"; "inputs_from" chooses its own shapes',
        ),
        (
            ["inputs_from: kernels.py:make", "surrogate: true"],
            '5: checks[0].surrogate: wanted a "reference_backward" that is the surrogate, found none',
        ),
        (
            ["inputs_from: kernels.py:make", "matrix:", "  dtyp: [float32]"],
            "6: checks[0].matrix.dtyp: wanted one of dtype, device, seed, profile, found 'dtyp', "
            'did you mean "dtype"?',
        ),
        (
            ["inputs_from: kernels.py:make", "matrix: {seed: []}"],
            "5: checks[0].matrix.seed: wanted at least one value, found none",
        ),
        (
            ["inputs: {x: {shape: [M]}}", "matrix: {M: [1, two]}"],
            "5: checks[0].matrix.M[1]: wanted a size (a whole number, 0 or more), found 'two'",
        ),
        (
            ["inputs_from: kernels.py:make", "expect: 3"],
            "5: checks[0].expect: wanted one of covered, violated, raised, ",
        ),
        (
            ["inputs_from: kernels.py:make", "battery: most"],
            "5: checks[0].battery: wanted all, none or a list of items, found 'most'",
        ),
        (["inputs_from: kernels.py:make", "battery: [shared_grad]"], "5: checks[0].battery: wanted one of grad_"),
        (["inputs_from: kernels.py:make", "seed: 1", "seed: 2"], "6: checks[0].seed: this key is written twice"),
    ],
)
def test_contradiction_is_explained_where_it_stands(tmp_path: Path, lines: list[str], message: str) -> None:
    (found,) = mistakes(tmp_path, check(*lines))
    assert found.startswith(message)


def test_two_checks_of_one_name_are_refused(tmp_path: Path) -> None:
    text = check("inputs_from: kernels.py:make") + "  - {function: kernels.py:Square, inputs_from: a.py:b}\n"
    name = "checks[1].name: wanted a name of its own, found 'kernels.py:Square' again"
    assert mistakes(tmp_path, text) == [f"5: {name}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the file: wanted a mapping with version and checks, found nothing"),
        ("- 1\n", "1: the file: wanted a mapping with version and checks, found [1]"),
        ("version: 1\nchecks: []\n", "2: checks: wanted at least one check, found none"),
        ("version: 1\nchecks: [\n", "3: not YAML: expected the node content, but found '<stream end>'"),
        ("a: &x [*x]\n", "1: not YAML: nested more than 40 deep (an anchor inside itself?)"),
        (
            "version: 1\nchecks: !!python/object/apply:os.getcwd []\n",
            "2: not YAML: the tag tag:yaml.org,2002:python/object/apply:os.getcwd is not known",
        ),
    ],
)
def test_file_that_is_no_spec_is_explained(tmp_path: Path, text: str, message: str) -> None:
    assert mistakes(tmp_path, text)[0].startswith(message)
