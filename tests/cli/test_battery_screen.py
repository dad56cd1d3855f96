"""The battery's table beside a violated tensor tells what was found, and counts the rest."""

import io

from exactref_cli.render.battery import contract
from exactref_cli.render.console import on
from kernels_core.report import BatteryRow, Outcome

ROWS = (
    BatteryRow("mutation", Outcome.PASS, "nothing is written to"),
    BatteryRow("vmap", Outcome.NOT_APPLICABLE, "no rule"),
    BatteryRow("unwritten", Outcome.FAIL, "3 of 8 elements"),
)


def printed(**options):
    stream = io.StringIO()
    contract(on(stream), ROWS, **options)
    return stream.getvalue()


def test_every_item_is_shown_where_no_tensor_is_violated():
    assert all(row.name in printed() for row in ROWS)


def test_only_findings_are_shown_beside_a_violated_tensor():
    text = printed(brief=True)
    assert "battery: 2 items without a finding" in text
    assert "unwritten" in text
    assert "mutation" not in text
    assert "vmap" not in text
