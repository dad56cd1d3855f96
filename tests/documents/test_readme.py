"""What the README and docs/specs.md show is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from exactref_cli import schema
from exactref_cli.app import app
from exactref_cli.spec import read
from kernels_core.battery import ITEMS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHECKS = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
SPECS = (ROOT / "docs" / "specs.md").read_text(encoding="utf-8")


def words(text: str) -> list[str]:
    """Return the words of a screen without the times and the measured numbers, which depend on the machine."""
    return re.sub(r"-?\d+\.\d+(e[+-]\d+)?", "#", text).split()


def blocks(text: str, language: str = "") -> list[str]:
    fenced = (block.partition("\n") for block in text.split("```")[1::2])
    return [body for found, _, body in fenced if found == language]


def test_python_example_gives_what_it_says() -> None:
    names: dict[str, object] = {}
    (example,) = [block for block in blocks(README, "python") if "class MyMatmul" in block]
    torch.manual_seed(0)
    exec(example, names)
    for line in example.splitlines():
        if line.endswith("# tensor(True)"):
            assert bool(eval(line, names)), line


@pytest.mark.parametrize(("place", "code"), [(0, 0), (1, 1)])
def test_screen_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch, place: int, code: int) -> None:
    monkeypatch.chdir(ROOT)
    command, _, screen = [b for b in blocks(README) if b.startswith("$ exactref")][place].partition("\n")
    found = CliRunner().invoke(app, command.split()[2:])
    assert (found.exit_code, words(found.stdout)) == (code, words(screen))


@pytest.mark.parametrize("model", [schema.Check, schema.Input])
def test_every_key_of_a_spec_is_documented(model: type[schema.Check | schema.Input]) -> None:
    keys = [field.alias or name for name, field in model.model_fields.items()]
    assert [key for key in keys if f"| `{key}` |" not in SPECS] == []


def test_every_item_of_the_battery_is_documented_with_a_kernel_that_it_catches() -> None:
    rows = [line for line in CHECKS.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(ITEMS)
    assert all(f"| {item.looks_at} |" in row for row, item in zip(rows, ITEMS.values(), strict=True))
    faults = {
        check.name: check.function.partition(":")[2] for check in read(ROOT / "configs/contract_faults.yaml").checks
    }
    assert set(faults) == set(ITEMS)
    assert all(f"`{faults[name]}`" in row for name, row in zip(ITEMS, rows, strict=True))


def test_spec_of_the_documentation_runs(tmp_path: Path) -> None:
    spec, *_ = blocks(SPECS, "yaml")
    (tmp_path / "kernels.py").write_bytes((ROOT / "configs" / "kernels.py").read_bytes())
    (tmp_path / "spec.yaml").write_text(spec, encoding="utf-8")
    found = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert "7 cases: 6 covered, 1 violated as expected" in found.output
