"""A fake engine and a small module of kernels, so that the command line is tested without numerics."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels_core.report import Element, Failure, InputReport, Raised, Report, TensorReport, Verdict

KERNELS = """
import torch


class Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        ctx.save_for_backward(A, B)
        return A @ B

    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        return grad @ B.T, A.T @ grad


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Layer(torch.nn.Module):
    def forward(self, x):
        return x.sin()


layer = Layer()
number = 3


def plain(x):
    return x * x


def make(generator):
    return {"x": torch.randn(3, generator=generator), "n": 2}


def make_list(generator):
    return [1]


def make_broken(generator):
    raise KeyError("rows")
"""


def row(name: str = "output", **changes: Any) -> TensorReport:
    """Return a covered row, with changes."""
    base = TensorReport(
        name=name, kind="gradient" if name.startswith("grad") else "output", shape=(2, 3), dtype="float32", elements=6,
        covered=6, violated=0, undecided=0, unconstrained=0, kinks=0, max_error_ulp=0.498, bound_ulp=0.709, used=0.96,
        precision=None, verdict=Verdict.COVERED,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def violated_row() -> TensorReport:
    """Return a row whose six elements are all 1.5 times the exact value."""
    elements = (
        Element((1, 2), 0.375, 0.249999985, 0.250000015, 0.25, 8388606.0, 1.5),
        Element((0, 1), float("nan"), -1.0, -1.0, -1.0, float("inf"), None),
    )
    diagnosis = ("all 6 failing elements are 1.5 times the exact value",)
    return row(
        "grad_x", covered=0, violated=6, max_error_ulp=8388607.0, used=4194303.0, verdict=Verdict.VIOLATED,
        failure=Failure(elements, "all elements", diagnosis, (3, 1)),
    )  # fmt: skip


def report(*rows: TensorReport, raised: Raised | None = None, notes: tuple[str, ...] = (), name: str = "") -> Report:
    """Return a report of these rows."""
    return Report(
        name=name, function="Square", reference="Square.forward", inputs=(InputReport("x", "float32[2, 3]", True),),
        tensors=rows, raised=raised, seed=0, profile="ieee", device="cpu", seconds=0.25, notes=notes,
    )  # fmt: skip


@pytest.fixture
def reports() -> Any:
    """Builders of reports: reports.row, reports.violated_row, reports.report."""
    return _Builders


class _Builders:
    row, violated_row, report = staticmethod(row), staticmethod(violated_row), staticmethod(report)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that sets what the fake engine answers (reports or exceptions, the last one repeated)."""

    def answer(*answers: Any) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def verify(function: Any, inputs: Any, **options: Any) -> Report:
            calls.append({"function": function, "inputs": inputs, **options})
            found = answers[min(len(calls), len(answers)) - 1]
            if isinstance(found, BaseException):
                raise found
            return dataclasses.replace(found, name=options["name"], seed=options["seed"],
                                       profile=options["profile"] or "ieee")  # fmt: skip

        monkeypatch.setattr("kernels_core.verify.verify", verify)
        return calls

    return answer


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a working directory that holds kernels.py; modules loaded from it are forgotten afterwards."""
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def exactref(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs the command line: (exit code, standard output, standard error)."""
    from exactref_cli.app import main

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(list(arguments))
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call
