"""Copy the verification cases into tests/cases and write one spec per case into tests/specs/cases.

Usage: python scripts/write_case_specs.py [FOLDER OF CASES, default ../shared/cases]

A case says of itself which verdicts are expected (EXPECT) and which checks beside the plain comparison they need
(NEEDS); every check runs with the whole battery.
"""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COPIES = ROOT / "tests" / "cases"
SPECS = ROOT / "tests" / "specs" / "cases"
FROM_SPECS = "../../cases"


def main(folder: Path) -> int:
    """Write copies and specs of every case in `folder`; return how many."""
    cases = sorted(path for path in folder.glob("[BV][0-9][0-9]_*.py"))
    for wanted in (COPIES, SPECS):
        wanted.mkdir(parents=True, exist_ok=True)
    for case in cases:
        if case.resolve().parent != COPIES:
            shutil.copyfile(case, COPIES / case.name)
        (SPECS / f"{case.stem}.yaml").write_text("\n".join(spec(case)) + "\n", encoding="utf-8")
    return len(cases)


def spec(case: Path) -> Iterator[str]:
    """Yield the lines of the spec of one case."""
    source = ast.parse(case.read_text(encoding="utf-8"))
    expect = constant(source, "EXPECT")
    yield f"# {(ast.get_docstring(source) or case.stem).splitlines()[0]}"
    yield "# Written by scripts/write_case_specs.py from the case's EXPECT and NEEDS; write it again, do not edit it."
    yield "version: 1"
    yield "checks:"
    for key, verdict in expect.items():
        yield from check(case, source, *key, verdict)


def check(case: Path, source: ast.Module, kernel: str, inputs: str, verdict: str) -> Iterator[str]:
    """Yield the lines of one check."""
    path = f"{FROM_SPECS}/{case.name}"
    yield f"  - name: {case.stem.partition('_')[0]}-{kernel}-{inputs}"
    yield f"    function: {path}:{kernel}"
    yield f"    reference: {path}:reference"
    if any(isinstance(node, ast.FunctionDef) and node.name == "reference_backward" for node in source.body):
        yield f"    reference_backward: {path}:reference_backward"
    yield f"    inputs_from: {path}:{inputs}"
    yield "    battery: all"
    yield f"    expect: {verdict}"


def constant(source: ast.Module, name: str) -> Any:
    """Return the value of a literal at the top of a module."""
    for node in source.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    raise ValueError(f"the case has no {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "cases")
