"""What docs/diagnosis.md says and shows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exactref_cli.app import app
from kernels_core.diagnosis import FAMILIES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")


def test_every_hypothesis_is_in_the_table() -> None:
    rows = [f"| {h.name} | {h.transform} |" for family in FAMILIES for h in family]
    assert [row for row in rows if row not in TEXT] == []


def words(text: str) -> list[str]:
    """Return the words of a screen without times and measured numbers, which depend on the machine."""
    return re.sub(r"-?\d+\.\d+(e[+-]\d+)?", "#", text).split()


def test_screens_are_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = [b for b in TEXT.split("```")[1::2] if b.startswith("\n$ exactref check")]
    command, _, screen = block.strip().partition("\n")
    found = CliRunner().invoke(app, command.split()[2:])
    assert (found.exit_code, words(found.stdout)) == (1, words(screen))
