"""The accuracy table: every figure has a source and covers it, and the page shows the same figures."""

from pathlib import Path

import pytest

from kernels_core.profiles import accuracies

PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"


@pytest.mark.parametrize("title", accuracies.TABLES)
def test_no_figure_is_below_what_its_source_documents(title: str) -> None:
    table = accuracies.TABLES[title]
    assert set(table) == set(accuracies.CPU)
    assert {name for name, one in table.items() if not 0 <= one.documented <= one.ulp} == set()
    assert {one.source for one in table.values()} <= set(accuracies.SOURCES)


def test_no_device_is_granted_less_than_plain_multiplications_and_divisions_need() -> None:
    assert accuracies.CPU_ULP["division"] == accuracies.CUDA_ULP["division"] == 0
    assert accuracies.TRITON_ULP["division"] == 2


def test_page_shows_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join(accuracies.page()) in text
