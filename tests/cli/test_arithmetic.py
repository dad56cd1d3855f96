"""What the screen and JSON say of the arithmetic: what was granted and why, and what would cover a violated kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from exactref_cli.app import app

KERNELS = """import torch

def product(A, B):
    return A @ B

class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        ctx.save_for_backward(A, B)
        return A @ B

    @staticmethod
    def backward(ctx, grad):
        A, B, grad = (x.bfloat16().float().numpy() for x in (*ctx.saved_tensors, grad))
        return torch.from_numpy(grad @ B.T), torch.from_numpy(A.T @ grad)
"""
SHAPES = ("--shape", "A=16x32", "--shape", "B=32x8", "--values", "A=normal", "--values", "B=normal")
REFERENCE = ("--reference", "exactref:matmul", "--battery", "none")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def run(*options: str) -> str:
    return CliRunner().invoke(app, ["gradcheck", *options, *SHAPES, *REFERENCE]).stdout


def case(*options: str) -> Any:
    return json.loads(run(*options, "--format", "json"))["cases"][0]


def test_violated_gradients_are_told_what_would_cover_them() -> None:
    line = "grad_A and grad_B: consistent with bfloat16 inputs (--profile ieee,matmul_input=bfloat16)"
    assert line in run("kernels.py:Rounded")
    found = {"tensors": ["grad_A", "grad_B"], "profiles": ["ieee,matmul_input=bfloat16"], "decided": True}
    assert case("kernels.py:Rounded")["consistent"] == [{**found, "text": "consistent with bfloat16 inputs"}]
    assert "covered" in run("kernels.py:Rounded", "--profile", "ieee,matmul_input=bfloat16").splitlines()[0]


def test_covered_kernel_is_told_nothing_of_other_arithmetic() -> None:
    assert "consistent" not in run("kernels.py:product")
    assert case("kernels.py:product")["consistent"] == []


def test_profile_and_knobs_are_in_every_report() -> None:
    assert "profile tf32,split_k=2, device cpu" in run("kernels.py:product", "--profile", "tf32,split_k=2")
    found = case("kernels.py:product", "--profile", "triton,function_ulp=exp:4")
    assert (found["profile"], found["arithmetic"]["knobs"]) == (
        "triton,function_ulp=exp:4",
        {"function_ulp": {"exp": 4}},
    )


def test_auto_says_what_it_picked_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    found = case("kernels.py:product")
    assert (found["profile"], found["arithmetic"]["reason"]) == ("ieee", "auto: cpu")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    screen = run("kernels.py:product", "--dtype", "bfloat16")
    assert "profile auto: bfloat16 on a cpu with AMX tiles" in screen
    assert "profile amx (auto)" in screen
