"""`exactref doctor`, and a check that refuses where the arithmetic is not what it rests on."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import exactref as er
from kernels_core import doctor
from kernels_core.errors import AssumptionError

Call = Callable[..., tuple[int, str, str]]

FOUND = [
    doctor.Measurement("arithmetic", "float64 keeps subnormal numbers", 0.0, 0.0, "", "main thread", 5),
    doctor.Measurement("function", "exp", 0.501, 4.5, "ulp", "19.5", 2100),
]
BAD = [
    doctor.Measurement("arithmetic", "float64 keeps subnormal numbers", math.inf, 0.0, "", "not in main thread: x", 5),
    doctor.Measurement("function", "exp", 12.25, 4.5, "ulp", "19.5", 2100),
]
GOOD_SCREEN = """\
  assumption                           worst    limit  verdict  tried  where
  float64 keeps subnormal numbers                      holds        5  main thread
  exp                              0.501 ulp  4.5 ulp  holds     2100  19.5

2 assumptions hold on this machine
"""
BAD_SCREEN = """\
  assumption                          worst    limit  verdict        tried  where
  float64 keeps subnormal numbers                     does not hold      5  not in main thread: x
  exp                              12.2 ulp  4.5 ulp  does not hold   2100  19.5

  float64 keeps subnormal numbers: not in main thread: x
  exp: 12.2 ulp at 19.5
2 of 2 assumptions do not hold on this machine: nothing is certified here
"""
REFUSAL = """\
nothing can be decided: float64 flushes subnormal numbers to zero in this process
something has called torch.set_flush_denormal(True), or was built with -ffast-math and sets it when it is loaded; \
`exactref doctor` shows more"""


@pytest.mark.parametrize(("found", "screen", "code"), [(FOUND, GOOD_SCREEN, 0), (BAD, BAD_SCREEN, 4)])
def test_what_was_measured_is_printed_and_an_assumption_that_fails_exits_4(
    found: list[doctor.Measurement], screen: str, code: int, exactref: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda points, seed: found)
    assert exactref("doctor") == (code, screen, "")
    told, out, _ = exactref("doctor", "--json")
    assert told == code
    assert [row["holds"] for row in json.loads(out)["assumptions"]] == [code == 0] * 2
    assert exactref("doctor", "--format", "json") == (code, out, "")


def test_options_reach_the_measurement(exactref: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(doctor, "examine", lambda points, seed: calls.append((points, seed)) or FOUND)
    exactref("doctor", "--points", "7", "--seed", "3")
    assert calls == [(7, 3)]


@pytest.fixture
def unflushed() -> Iterator[None]:
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("where", ["", "    "])
def test_check_refuses_where_the_users_module_flushes_subnormals(
    where: str, folder: Path, exactref: Call, unflushed: None
) -> None:
    line = "torch.set_flush_denormal(True)\n"
    body = f"def kernel(x):\n    {line if where else ''}    return x * 2\n"
    (folder / "fast.py").write_text(f"import torch\n{'' if where else line}\n\n{body}", encoding="utf-8")
    code, out, _ = exactref("gradcheck", "fast.py:kernel", "--shape", "x=3", "--battery", "none")
    assert code == 4
    assert "fast.py:kernel: not decided" in out
    assert "nothing can be decided: float64 flushes subnormal numbers to zero in this process" in out


def test_python_side_refuses_too(unflushed: None) -> None:
    torch.set_flush_denormal(True)
    with pytest.raises(AssumptionError) as refusal:
        er.matmul(torch.ones(2, 2), torch.ones(2, 2))
    assert str(refusal.value) == REFUSAL
