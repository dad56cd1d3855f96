"""What docs/diagnosis.md says and shows is so."""

from __future__ import annotations

from pathlib import Path

from kernels_core.diagnosis import FAMILIES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")


def test_every_hypothesis_is_in_the_table() -> None:
    rows = [f"| {h.name} | {h.transform} |" for family in FAMILIES for h in family]
    assert [row for row in rows if row not in TEXT] == []
