"""Triton kernels on the CPU, in Triton's interpreter: right ones are certified, faults are proved.

`pip install -e '.[triton]'` installs Triton (a gigabyte); without it these tests are skipped.
"""

import os
from typing import Any

import pytest
import torch

import exactref
from kernels_core.report import Verdict
from kernels_core.verify import verify

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from tests.interpreted import kernels

# Not in bfloat16: the interpreter calculates with the bits of bfloat16 as whole numbers (docs/in_the_wild.md).
DTYPES = (torch.float32, torch.float16)


def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def inputs(name: str, dtype: torch.dtype) -> dict[str, Any]:
    if name == "matmul":
        return {"A": draw(19, 37, dtype=dtype), "B": draw(37, 21, dtype=dtype)}
    rows = {"input": draw(6, 37, dtype=dtype)}
    if name == "softmax":
        return rows
    return {**rows, "weight": draw(37, dtype=dtype), "bias": draw(37, dtype=dtype)}


RIGHT = {"layer_norm": kernels.LayerNorm, "softmax": kernels.Softmax, "matmul": kernels.Matmul}
WRONG = {
    "layer_norm": (kernels.CountsThePadding, "output"),
    "softmax": (kernels.IgnoresTheSum, "grad_input"),
    "matmul": (kernels.LosesTheTail, "output"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", RIGHT)
def test_triton_kernel_is_certified_against_the_catalogue(name: str, dtype: torch.dtype) -> None:
    report = verify(RIGHT[name], inputs(name, dtype), reference=exactref.catalogue()[name])
    assert report.verdict is Verdict.COVERED, report.raised or report.tensors


@pytest.mark.parametrize("name", WRONG)
def test_fault_in_a_triton_kernel_is_proved(name: str) -> None:
    kernel, tensor = WRONG[name]
    report = verify(kernel, inputs(name, torch.float32), reference=exactref.catalogue()[name])
    assert report.row(tensor).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("name", RIGHT)
def test_triton_kernel_keeps_the_contract(name: str) -> None:
    items = ["grad_output_layout", "input_layout", "mutation", "canaries", "unwritten", "retained_graph"]
    report = verify(RIGHT[name], inputs(name, torch.float32), reference=exactref.catalogue()[name], battery=items)
    assert report.verdict is Verdict.COVERED, report.battery
