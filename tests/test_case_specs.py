"""The specs of the verification cases say what the cases say of themselves."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from exactref_cli.spec import read

ROOT = Path(__file__).parent
CASES = sorted((ROOT / "cases").glob("*.py"))


@pytest.fixture(scope="module")
def writer() -> Any:
    spec = importlib.util.spec_from_file_location("write_case_specs", ROOT.parent / "scripts" / "write_case_specs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_one_spec_for_every_case() -> None:
    assert [path.stem for path in CASES] == sorted(path.stem for path in (ROOT / "specs" / "cases").glob("*.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem[:3])
def test_spec_is_what_the_script_writes(case: Path, writer: Any) -> None:
    path = ROOT / "specs" / "cases" / f"{case.stem}.yaml"
    assert path.read_text(encoding="utf-8") == "\n".join(writer.spec(case)) + "\n"
    assert read(path).checks
