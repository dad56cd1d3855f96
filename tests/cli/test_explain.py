"""`exactref explain`: the contract is told, and no kernel is called."""

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels_core.battery.sizes import interesting
from kernels_core.profiles import PROFILES

Call = Callable[..., tuple[int, str, str]]

KERNELS = """
import torch

CALLS = []


class Loud(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        raise SystemExit("the kernel was called")

    @staticmethod
    def backward(ctx, grad):
        raise SystemExit("the kernel was called")


class Branches(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if float(x.sum().item()) > 0:
            return x * 2
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def narrow(A, B):
    return A.to(torch.bfloat16) @ B.to(torch.bfloat16)


def chain(x, index):
    return x.exp()[index].sum(-1)


def backward(inputs, outputs, grads):
    return [None, grads[0]]


def make(generator):
    return {"x": torch.randn(4, 5, generator=generator), "index": torch.tensor([3, 0])}
"""

SPEC = """\
version: 1
checks:
  - name: loud
    function: k.py:Loud
    reference: k.py:narrow
    dims: {K: 7}
    inputs:
      A: {shape: [3, K], requires_grad: false}
      B: {shape: [K, 2], values: offset, requires_grad: true}
    battery: [mutation, sizes, values_ties]
  - name: branching
    function: k.py:Branches
    inputs: {x: {shape: [4]}}
  - name: made
    function: k.py:Loud
    reference: k.py:chain
    inputs_from: k.py:make
    kinks: convention
    expect: violated
  - name: large
    function: k.py:Loud
    reference: exactref:matmul
    inputs:
      A: {shape: [6000, 6000]}
      B: {shape: [6000, 6000]}
  - name: huge
    function: k.py:Loud
    reference: exactref:matmul
    inputs:
      A: {shape: [1000000, 100000]}
      B: {shape: [100000, 1000000]}
"""

LOUD = """\
loud
  kernel     k.py:Loud, on cpu
  reference  k.py:narrow; the gradients are PyTorch's derivative of it
  profile    ieee: {grants}
  kinks      accept: any element of the subdifferential is accepted
  seed       0, of inputs and upstream gradients

  tensor  shape  dtype     made of, or granted
  A       3x7    float32   normal
  B       7x2    float32   offset; its gradient is checked
  output  3x2    bfloat16  mm; sums of up to 7 terms in any order; 3 roundings to bfloat16; casts to bfloat16 at k.py:30
  grad_B  7x2    float32   mm; sums of up to 3 terms in any order; 2 roundings to bfloat16; casts to bfloat16 at k.py:30

  battery    mutation, sizes
  families   ties; drawn for A
  sizes      {sizes}
"""


@pytest.fixture
def spec(folder: Path) -> Path:
    (folder / "k.py").write_text(KERNELS, encoding="utf-8")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return folder / "spec.yaml"


def told(exactref: Call, *words: str) -> dict[str, object]:
    code, out, _ = exactref("explain", "spec.yaml", "--format", "json", *words)
    assert code == 0
    (case,) = json.loads(out)["cases"]
    return case


def test_contract_of_every_tensor_is_printed_and_no_kernel_is_called(spec: Path, exactref: Call) -> None:
    code, out, err = exactref("explain", "spec.yaml", "--case", "loud")
    told, _, cost = out.partition("  cost ")
    assert (code, err) == (0, "")
    sizes = ", ".join(f"K={size}" for size in interesting(7))
    assert told == LOUD.format(grants=PROFILES["ieee"].grants, sizes=sizes)
    assert "for the plain comparison; the battery stops after 22 times that" in cost
    assert out.splitlines()[-1].startswith("1 case; no kernel was called; about ")


def test_json_has_what_the_screen_has(spec: Path, exactref: Call) -> None:
    case = told(exactref, "--case", "loud")
    assert [t["name"] for t in case["tensors"]] == ["A", "B", "output", "grad_B"]
    assert case["tensors"][2]["granted"]["roundings"] == {"bfloat16": 3}
    assert case["battery"] == ["mutation", "values_ties", "sizes"]
    assert case["cost"]["multiply_adds"] == 2 * 3 * 7 * 2


def test_reference_that_needs_values_is_not_run_for_the_explanation(spec: Path, exactref: Call) -> None:
    code, out, _ = exactref("explain", "spec.yaml", "--case", "branching")
    assert code == 0
    assert "x       4      float32  normal; its gradient is checked" in out
    assert "not told" in out
    assert "the run itself traces it on values" in out
    assert "cost" not in out


def test_function_that_makes_the_inputs_is_named_as_their_source(spec: Path, exactref: Call) -> None:
    case = told(exactref, "--case", "made")
    values = {t["name"]: (t["values"], t["dtype"], t["differentiated"]) for t in case["tensors"][:2]}
    assert values == {"x": ("from inputs_from", "float32", True), "index": ("from inputs_from", "int64", False)}
    assert (case["kinks"], case["expect"]) == ("convention", "violated")


def test_inputs_are_not_made_for_the_explanation(spec: Path, exactref: Call) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    case = told(exactref, "--case", "large")
    assert case["cost"]["multiply_adds"] == 3 * 6000**3
    assert case["cost"]["bytes"] > 8 * 6000**2
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 2 * 4 * 6000**2  # drawing one of the inputs takes this much


def test_inputs_that_no_machine_holds_are_one_message(spec: Path, exactref: Call) -> None:
    code, out, err = exactref("explain", "spec.yaml", "--case", "huge")
    assert (code, out) == (2, "")
    assert "huge: the inputs do not fit into the memory of this machine" in err


def test_no_case_of_that_name_is_one_message(spec: Path, exactref: Call) -> None:
    assert exactref("explain", "spec.yaml", "--case", "lout") == (
        2,
        "",
        "no case is called 'lout', did you mean \"loud\"?\n",
    )


def test_unknown_form_is_refused(spec: Path, exactref: Call) -> None:
    assert exactref("explain", "spec.yaml", "--format", "yaml") == (
        2,
        "",
        "--format: wanted table or json, found 'yaml'\n",
    )
