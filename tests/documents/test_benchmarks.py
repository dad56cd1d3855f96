"""Every benchmark finds what it imports: they are run by hand, so nothing else would notice."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

NAMES = sorted(path.stem for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__
