"""On a narrow terminal nothing wraps: columns that tell nothing are left out, elements stand one under the other."""

import io
from typing import Any

import pytest
from rich.console import Console

from exactref_cli.render import case, console, doctor, listing
from exactref_cli.render.console import on
from exactref_cli.run import Case, Outcome
from kernels_core.doctor import Measurement

NARROW = """\
square: violated
  Square against Square.forward
  inputs: x float32[2, 3]
  seed 0, profile ieee, device cpu, 0.25 s

                                             max error  bound
  tensor  shape  dtype    covered  violated      (ulp)  (ulp)      used  verdict
  output  2x3    float32        6         0      0.498  0.709      0.96  covered
  grad_x  2x3    float32        0         6   8.39e+06  0.709  4.19e+06  violated

  grad_x is violated: all elements
  all 6 failing elements are 1.5 times the exact value

  [1, 2] actual 0.375, admissible [0.249999985, 0.250000015]
         exact 0.25, 8.39e+06 ulps outside, ratio 1.5
  [0, 1] actual nan, admissible [-1, -1]
         exact -1, inf ulps outside, ratio -

  and 4 more elements
  shape [2, 3], strides [3, 1], float32, seed 0

"""


def screen(monkeypatch: pytest.MonkeyPatch, reports: Any, columns: int) -> str:
    monkeypatch.setattr("exactref_cli.render.table.room", lambda console: columns)
    monkeypatch.setattr("exactref_cli.render.failure.room", lambda console: columns)
    stream = io.StringIO()
    report = reports.report(reports.row(), reports.violated_row())
    made = Case("square", abs, "Square", dict)  # type: ignore[arg-type]
    case.show(on(stream), Outcome(made, report, "", 1))
    return stream.getvalue()


def test_narrow_screen_has_what_matters(monkeypatch: pytest.MonkeyPatch, reports: Any) -> None:
    assert screen(monkeypatch, reports, 84) == NARROW


@pytest.mark.parametrize("columns", [60, 80, 84, 100, 120])
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, reports: Any, columns: int) -> None:
    assert max(map(len, screen(monkeypatch, reports, columns).splitlines())) <= columns


def test_long_text_is_folded_at_words_on_a_terminal_and_whole_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "would be flagged: " + ", ".join(f"a factor of {n} on 100 %" for n in range(9))
    monkeypatch.setattr(console, "room", lambda shown: 80)
    in_a_file = console.folded(console.on(io.StringIO()), text)
    on_a_terminal = console.folded(Console(file=io.StringIO(), force_terminal=True), text)
    lines = on_a_terminal.splitlines()
    assert in_a_file == f"  {text}"
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert all(line.startswith("    ") for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == text


@pytest.mark.parametrize("columns", [60, 80])
def test_what_the_doctor_measured_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    name = "a product is rounded before it is added to, no FMA: " + "further words " * 2
    found = [
        Measurement("arithmetic", name, 0.0, 0.0, "", "main thread", 5),
        Measurement("function", "exp", 12.25, 4.5, "ulp", "19.5", 2100),
    ]
    monkeypatch.setattr("exactref_cli.render.doctor.room", lambda console: columns)
    stream = io.StringIO()
    doctor.show(on(stream), found)
    table, _, _ = stream.getvalue().partition("\n\n")
    assert max(map(len, table.splitlines())) <= columns
    assert name.split() == [word for word in table.split() if word in name.split()]


def test_what_is_listed_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactref_cli.render.listing.room", lambda console: 80)
    rows = [{"name": "exactref:layer_norm", "arguments": "input, weight=None, " * 6}]
    operations = [{"operation": f"aten._adaptive_avg_pool{n}d_backward.default"} for n in range(9)]
    stream = io.StringIO()
    listing.show(on(stream), {"references": rows, "profiles": rows, "operations": operations})
    assert max(map(len, stream.getvalue().splitlines())) <= 80
    assert all(entry["operation"] in stream.getvalue() for entry in operations)
