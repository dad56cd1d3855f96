"""Every reproduction of docs/in_the_wild.md prints what stands below it, where its package is installed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

from tests.documents.test_findings_page import REPRODUCTION, printed, words

PAGE = (Path(__file__).parents[2] / "docs" / "in_the_wild.md").read_text(encoding="utf-8")
FOUND = {int(part.partition(".")[0]): part for part in re.split(r"\n\*\*(?=\d+\. )", PAGE)[1:]}


def test_findings_are_numbered_as_the_table_names_them() -> None:
    assert list(FOUND) == list(range(1, len(FOUND) + 1))
    named = {
        int(number) for row in PAGE.splitlines() if row.startswith("|") for number in re.findall(r"\((\d+)\)", row)
    }
    assert named == set(FOUND)


@pytest.mark.filterwarnings("ignore")  # of the packages
@pytest.mark.parametrize("number", FOUND)
def test_reproduction_prints_what_the_page_says(number: int) -> None:
    found = REPRODUCTION.search(FOUND[number])
    assert found, "no reproduction with its output"
    code, shown = found.groups()
    pytest.importorskip(
        code.split()[1].partition(".")[0], reason="pip install -r benchmarks/in_the_wild/requirements.txt"
    )
    assert words(printed(code)) == words(shown)
