"""The sensitivity line and the option that requires it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from exactref_cli.app import app

KERNEL = "import torch\n\ndef product(A, B):\n    return A @ B\n"
SPEC = """version: 1
checks:
  - name: product
    function: kernels.py:product
    require_sensitivity: {format}
    inputs:
      A: {{shape: [4, {k}], values: {values}}}
      B: {{shape: [{k}, 4], values: {values}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kernels.py").write_text(KERNEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(folder: Path, *options: str, k: int = 8, values: str = "normal", form: str = "float16") -> tuple[int, str]:
    (folder / "spec.yaml").write_text(SPEC.format(k=k, values=values, format=form), encoding="utf-8")
    found = CliRunner().invoke(app, ["check", "spec.yaml", *options])
    return found.exit_code, found.stdout


def test_sensitive_spec_passes_and_says_what_it_would_show(folder: Path) -> None:
    code, out = check(folder)
    assert code == 0
    assert "would be flagged: float16 rounding on 100 % of elements, bfloat16 rounding on 100 %, a factor of" in out


def test_spec_whose_inputs_could_not_show_it_fails(folder: Path) -> None:
    code, out = check(folder, values="ones")
    assert code == 4
    assert "product: insensitive (covered)" in out
    assert "require_sensitivity: float16 rounding of output would not show; give inputs with more digits" in out


def test_option_stands_above_the_spec(folder: Path) -> None:
    assert check(folder, "--require-sensitivity", "tf32", k=4096)[0] == 4
    assert check(folder, "--require-sensitivity", "tf32", k=8)[0] == 0


def test_unknown_format_is_refused_with_the_nearest_name(folder: Path) -> None:
    found = CliRunner().invoke(app, ["gradcheck", "kernels.py:product", "--require-sensitivity", "float61"])
    assert found.exception is not None
    assert "--require-sensitivity: wanted one of float32, tf32" in str(found.exception)
    assert "float16" in str(found.exception)
