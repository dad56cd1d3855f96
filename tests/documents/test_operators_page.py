"""The sweep over the operator database goes on from its log, and the page is made of what the log holds."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import operators
from benchmarks.operator_log import append, read_log, summary
from benchmarks.operator_table import HEAD, read, table


def entry(name: str, verdict: str = "certified", **more: Any) -> dict[str, Any]:
    samples = {"certified": 3} if verdict == "certified" else {verdict: 1, "certified": 2}
    return {"name": name, "dtype": "float32", "verdict": verdict, "samples": samples, "left": 0, "notes": [],
            "seconds": 1.0, **more}  # fmt: skip


def test_sweep_runs_only_what_its_log_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "float32.jsonl"
    append(log, entry("add"))

    class Op:
        variant_test_name = ""

        def __init__(self, name: str) -> None:
            self.name = name

    class Pool:
        def __init__(self, workers: int) -> None:
            pass

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def imap_unordered(self, _: object, jobs: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
            return [entry(f"entry {job[0]}") for job in jobs]

    monkeypatch.setattr(operators, "entries", lambda dtype: [Op("add"), Op("mul")])
    monkeypatch.setattr(operators.multiprocessing, "get_context", lambda _: argparse.Namespace(Pool=Pool))
    options = argparse.Namespace(dtype="float32", log=log, only="", samples=0, seconds=1.0, order="first", workers=1)
    assert [found["name"] for found in operators.swept(options)] == ["add", "entry 1"]
    assert [found["name"] for found in read_log(log)] == ["add", "entry 1"]


def test_later_line_of_an_entry_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    append(first, entry("add", "error"))
    append(first, entry("mul", "error"))
    append(first, entry("mul"))
    append(second, entry("add"))
    page = table(read([str(first), str(second)]))
    assert "- **float32: 2 entries: 2 certified; 0 unexplained**" in page


def test_summary_counts_samples_that_were_not_tried() -> None:
    lines = summary([entry("add"), entry("mul", left=4), entry("sub", "unconstrained")]).splitlines()
    assert lines[0] == "3 entries: 2 certified, 1 unconstrained; 3 s"
    assert lines[1].startswith("1 entries certified in every sample that they have; 8 of 9 samples tried, 4 not tried")


def test_page_leaves_no_entry_unexplained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    assert page.startswith(HEAD)
    totals = re.findall(r"- \*\*(\w+): (\d+) entries: (\d+) certified, .*; (\d+) unexplained\*\*", page)
    assert [(dtype, left) for dtype, *_, left in totals] == [("float32", "0"), ("bfloat16", "0"), ("float16", "0")]
    assert int(totals[0][1]) == 540
    assert int(totals[0][2]) >= 500
