"""Every verification case gets the verdict that it claims, through the real command line."""

from __future__ import annotations

import json
import pathlib

import pytest
from typer.testing import CliRunner

from exactref_cli.app import app

SPECS = sorted((pathlib.Path(__file__).parent / "specs" / "cases").glob("*.yaml"))


def test_there_is_a_spec_for_every_case():
    assert len(SPECS) == 40


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_case_gets_its_verdict(spec):
    result = CliRunner().invoke(app, ["check", str(spec), "--format", "json"])
    assert result.exit_code == 0, result.output
    cases = json.loads(result.stdout)["cases"]
    assert cases
    assert all(case["verdict"] in ("covered", "violated") for case in cases)
