"""Every reproduction of docs/findings.md runs and prints what stands below it, the values of the table among it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import flint
import pytest
import torch

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
SECTIONS = {int(part.partition(".")[0]): part for part in PAGE.split("\n## ")[1:] if part[0].isdigit()}
ROWS = {int(row.split("|")[1]): row.split("|")[3:5] for row in PAGE.splitlines() if re.match(r"\| \d+ \|", row)}
REPRODUCTION = re.compile(r"```python\n(.*?)```\n\n```\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|-?inf|nan", re.IGNORECASE)


def printed(code: str) -> str:
    """Return what the lines print, an error's last line included."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), flint.ctx.workprec(flint.ctx.prec):
        try:
            exec(code, {"torch": torch})
        except RuntimeError as error:
            out.write(f"RuntimeError: {error}\n")
    return out.getvalue()


def words(text: str) -> list[str]:
    """Return the words, numbers to 9 digits: float64 values may differ in their last ones from machine to machine."""
    return [f"{float(word):.9g}" if NUMBER.fullmatch(word) else word for word in text.split()]


def test_every_row_has_a_section_and_every_section_a_row() -> None:
    assert list(ROWS) == list(SECTIONS) == list(range(1, len(ROWS) + 1))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")  # said of 45
@pytest.mark.parametrize("number", SECTIONS)
def test_reproduction_prints_what_the_page_says(number: int) -> None:
    found = REPRODUCTION.search(SECTIONS[number])
    assert found, "no reproduction with its output"
    code, shown = found.groups()
    assert len([line for line in code.splitlines() if line]) <= 5
    assert words(printed(code)) == words(shown)


@pytest.mark.parametrize("number", ROWS)
def test_values_of_the_table_are_among_what_is_printed(number: int) -> None:
    found = REPRODUCTION.search(SECTIONS[number])
    shown = [float(word) for word in found[2].split() if NUMBER.fullmatch(word)] if found else []
    for value in (cell.split()[0] for cell in ROWS[number]):
        if NUMBER.fullmatch(value):
            digits = min(9, max(1, len(re.sub(r"e.*|[-.]", "", value).lstrip("0"))))
            assert f"{float(value):.{digits}g}" in [f"{x:.{digits}g}" for x in shown]
