"""The battery's table beside a violated tensor tells what was found, and counts the rest."""

import dataclasses
import io
import types

from exactref_cli.render.battery import contract
from exactref_cli.render.case import summary
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


def screen(rows):
    stream = io.StringIO()
    contract(on(stream), rows)
    return " ".join(stream.getvalue().split())


def test_families_that_pass_and_items_that_do_not_apply_are_one_row_each():
    families = [BatteryRow(f"values_{name}", Outcome.PASS, "12 elements") for name in ("a", "b", "c", "d")]
    nothing = [BatteryRow(name, Outcome.NOT_APPLICABLE, f"no {name}") for name in ("p", "q", "r", "s")]
    failed = BatteryRow("values_e", Outcome.FAIL, "3 of 12")
    text = screen([*nothing, *families, failed])
    assert "4 families pass a, b, c, d: 12 elements each" in text
    assert "4 items not applicable p, q, r, s" in text
    assert "values_e fail 3 of 12" in text


def test_items_that_were_skipped_are_one_row():
    skipped = [BatteryRow(name, Outcome.SKIPPED, f"taken {n} s") for n, name in enumerate(("p", "q", "values_r", "s"))]
    text = screen([BatteryRow("vmap", Outcome.PASS, "fine"), *skipped])
    assert "4 items skipped p, q, values_r, s: taken 0 s" in text
    assert "taken 1 s" not in text


def test_the_summary_counts_what_was_skipped(folder, engine, exactref, reports):
    skipped = tuple(BatteryRow(name, Outcome.SKIPPED, "taken 1 s") for name in ("vmap", "sizes"))
    engine(dataclasses.replace(reports.report(reports.row()), battery=skipped))
    _, out, _ = exactref("gradcheck", "kernels:Square", "--shape", "x=2x3")
    assert out.splitlines()[-1] == "1 case: 1 covered; 6 of 6 elements covered; 2 battery items skipped; 0.2 s"


def test_the_summary_counts_errors_in_the_plural():
    errors = [types.SimpleNamespace(words=word, report=None) for word in ("error", "error", "internal error")]
    assert summary(errors).startswith("3 cases: 2 errors, 1 internal error; ")


def test_few_rows_keep_what_they_say():
    text = screen([BatteryRow(name, Outcome.NOT_APPLICABLE, f"no {name}") for name in ("p", "q", "r")])
    assert "p not applicable no p" in text
