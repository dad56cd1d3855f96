"""A reproducer shows the fault in a fresh process, with torch alone; its spec shows it with exactref."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from exactref_cli.app import app
from kernels_core import minimal
from kernels_core.errors import ExactRefError
from kernels_core.verify import verify

KERNELS = """
import torch
from torch.autograd import Function


class Square(Function):
    @staticmethod
    def forward(ctx, output, power):
        ctx.save_for_backward(output)
        return output ** power

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return FACTOR * x * grad, None


class Product(Function):
    @staticmethod
    def forward(ctx, A, B):
        ctx.save_for_backward(A, B)
        return (A.float() @ B.float()).to(A.dtype)

    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        return (FACTOR / 2 * grad.float() @ B.float().T).to(A.dtype), (A.float().T @ grad.float()).to(B.dtype)


class NotANumber(Function):
    @staticmethod
    def forward(ctx, x):
        return x / x * x.sum()

    @staticmethod
    def backward(ctx, grad):
        return grad * 0


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)

    def forward(self, x):
        return Product.apply(x, self.inner.weight.T)


linear = Linear()


def times(x):
    return torch.ones_like(x) * x.sum()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNELS.replace("FACTOR", "3"), encoding="utf-8")
    return tmp_path


def reproduced(folder: Path, *options: str) -> Path:
    kernels = folder / "kernels.py"
    command = ["gradcheck", f"{kernels}:{options[0]}", "--battery", "none", "--reproduce", str(folder / "small")]
    result = CliRunner().invoke(app, [*command, *options[1:]])
    assert result.exit_code == 1, result.output
    (script,) = (folder / "small").glob("*.py")
    return script


def run_alone(script: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    code = f"import runpy, sys; sys.modules['exactref'] = None; runpy.run_path({str(script)!r})"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=script.parent, env=environment, capture_output=True, text=True
    )


CASES = (
    ("Square", "--shape", "output=33", "--values", "power=2"),
    ("Product", "--shape", "A=5x9", "--shape", "B=9x7", "--dtype", "bfloat16"),
    ("linear", "--shape", "x=5x6"),
    ("NotANumber", "--values", "x=[0,1,2]", "--reference", "{}:times"),
)


@pytest.mark.parametrize("options", CASES, ids=lambda options: options[0])
def test_script_shows_the_fault_in_a_fresh_process_until_it_is_mended(folder: Path, options: tuple[str, ...]) -> None:
    script = reproduced(folder, *(word.format(folder / "kernels.py") for word in options))
    found = run_alone(script)
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.startswith("returned ")
    assert "exactref" not in [line for line in script.read_text().splitlines() if "import" in line]
    if options[0] != "NotANumber":
        (folder / "kernels.py").write_text(KERNELS.replace("FACTOR", "2"), encoding="utf-8")
        assert run_alone(script).returncode == 0


@pytest.mark.parametrize("options", CASES, ids=lambda options: options[0])
def test_spec_shows_the_fault(folder: Path, options: tuple[str, ...]) -> None:
    script = reproduced(folder, *(word.format(folder / "kernels.py") for word in options))
    result = CliRunner().invoke(app, ["check", str(script.with_suffix(".yaml"))])
    assert result.exit_code == 1, result.output
    assert "violated" in result.output


def test_reproducer_names_no_place_outside_of_the_kernels_module(folder: Path) -> None:
    script = reproduced(folder, *CASES[0])
    text = script.read_text() + script.with_suffix(".yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(('"""', "- name:"))]
    assert not [line for line in lines if str(folder) in line]


def test_covered_case_writes_nothing(folder: Path) -> None:
    kernels = folder / "kernels.py"
    result = CliRunner().invoke(
        app, ["gradcheck", f"{kernels}:times", "--shape", "x=4", "--reproduce", str(folder / "no")]
    )
    assert result.exit_code == 0, result.output
    assert not (folder / "no").exists()


def test_sizes_that_tensors_share_are_cut_together() -> None:
    def product(A, B):
        return (A @ B) * 1.5

    def smaller(inputs):
        return verify(product, inputs, reference=torch.matmul, wrt=[], audit=False, diagnose=False)

    given = torch.Generator().manual_seed(0)
    inputs = {"input": torch.randn(6, 9, generator=given), "other": torch.randn(9, 7, generator=given)}
    found, report = minimal.smallest(smaller, inputs)
    assert [tuple(t.shape) for t in found.values()] == [(1, 1), (1, 1)]
    assert report.row("output").violated == 1


def test_size_that_the_fault_needs_is_kept() -> None:
    def kernel(x):
        return x * (1 + (torch.arange(len(x)) == 4))

    def smaller(inputs):
        return verify(kernel, inputs, reference=lambda x: x * 1, wrt=[], audit=False, diagnose=False)

    found, _ = minimal.smallest(smaller, {"x": torch.randn(40, generator=torch.Generator().manual_seed(0))})
    assert (len(found["x"]), found["x"].tolist()) == (5, [1.0] * 5)


def test_nothing_violated_is_refused() -> None:
    with pytest.raises(ExactRefError, match="nothing to reproduce"):
        minimal.smallest(lambda given: verify(torch.sin, given, audit=False), {"input": torch.ones(3)})
