"""`exactref init`: the spec that it writes runs as it stands."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

Call = Callable[..., tuple[int, str, str]]

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


class TanhGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.gelu(x, approximate="tanh")

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(grad, x, approximate="tanh")


def loss(logits, target):
    return torch.nn.functional.cross_entropy(logits.float(), target)


def weighted(x, weight=None):
    return x.sin() if weight is None else x.sin() * weight


def shifted(x, shift: float = 2.0):
    return x + shift


def several(xs: list[torch.Tensor], scale=0.5):
    return sum(xs) * scale


def only_double(x):
    if x.dtype != torch.float64:
        raise TypeError("float64 only")
    return x.exp()


def outside(x):
    return torch.from_numpy(x.detach().numpy() ** 3 + 1)
"""


@pytest.fixture
def mine(folder: Path) -> Path:
    (folder / "mine.py").write_text(KERNELS, encoding="utf-8")
    return folder


def spec(path: Path) -> list[dict[str, object]]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["checks"]


MATMUL = """\
# Written by `exactref init mine.py:Matmul`; every key is explained in docs/specs.md.
#     exactref explain matmul.yaml     what it will check, and the cost
#     exactref check matmul.yaml       the checks themselves
# exactref:matmul computes what the kernel's forward does.
version: 1
checks:
  - name: Matmul
    function: mine.py:Matmul
    reference: exactref:matmul
    seed: 0                 # of inputs and upstream gradients
    dims: {M: 16, K: 32, N: 8}    # found by trial: put the sizes that you use
    inputs:                 # in argument order
      A: {shape: [M, K]}
      B: {shape: [K, N]}
    matrix:                 # every combination is one case
      dtype: [float32, bfloat16, float16]
      # M: [1, 16, 17]
    battery: all            # what must hold beside the values of one call; `none` leaves it out
"""


def test_spec_is_written_with_its_comments(mine: Path, exactref: Call) -> None:
    code, out, err = exactref("init", "mine.py:Matmul")
    assert (code, err) == (0, "")
    assert (mine / "matmul.yaml").read_text(encoding="utf-8") == MATMUL
    assert out.splitlines()[0] == "wrote matmul.yaml"
    assert out.splitlines()[-1] == "run it: exactref check matmul.yaml"


def test_file_that_is_there_is_kept_unless_forced(mine: Path, exactref: Call) -> None:
    (mine / "own.yaml").write_text("mine", encoding="utf-8")
    code, _, err = exactref("init", "mine.py:Matmul", "-o", "own.yaml")
    assert (code, err) == (
        2,
        "own.yaml is there already\nchoose another file with -o, or replace it with --force\n",
    )
    assert (mine / "own.yaml").read_text(encoding="utf-8") == "mine"
    assert exactref("init", "mine.py:Matmul", "-o", "own.yaml", "--force")[0] == 0
    assert spec(mine / "own.yaml")[0]["reference"] == "exactref:matmul"


@pytest.mark.parametrize("kernel", ["Matmul", "TanhGelu", "shifted", "several", "only_double"])
def test_written_spec_runs_as_it_stands(kernel: str, mine: Path, exactref: Call) -> None:
    (mine / "specs").mkdir()
    assert exactref("init", f"mine.py:{kernel}", "-o", "specs/own.yaml")[0] == 0
    text = (mine / "specs" / "own.yaml").read_text(encoding="utf-8").replace("battery: all", "battery: [mutation]")
    (mine / "specs" / "own.yaml").write_text(text, encoding="utf-8")
    code, out, err = exactref("check", "specs/own.yaml")
    assert (code, err) == (0, ""), out


def test_variant_of_an_algorithm_is_told_by_its_values(mine: Path, exactref: Call) -> None:
    exactref("init", "mine.py:TanhGelu")
    assert spec(mine / "tanhgelu.yaml")[0]["reference"] == "exactref:gelu.tanh"


def test_kernel_that_nothing_in_the_catalogue_computes_is_its_own_reference(mine: Path, exactref: Call) -> None:
    _, out, _ = exactref("init", "mine.py:shifted")
    assert "reference" not in spec(mine / "shifted.yaml")[0]
    assert "no entry of the catalogue computes what the kernel's forward does" in out
    assert spec(mine / "shifted.yaml")[0]["inputs"]["shift"] == {"value": 2.0}


def test_dtypes_in_which_kernel_and_reference_return_the_same_are_kept(mine: Path, exactref: Call) -> None:
    exactref("init", "mine.py:loss")
    (check,) = spec(mine / "loss.yaml")
    assert check["reference"] == "exactref:cross_entropy"
    assert check["matrix"] == {"dtype": ["float32"]}  # the loss is float32 for every input


def test_tensors_that_may_be_left_out_make_two_checks(mine: Path, exactref: Call) -> None:
    exactref("init", "mine.py:weighted")
    checks = spec(mine / "weighted.yaml")
    assert [check["name"] for check in checks] == ["weighted with weight", "weighted without weight"]
    assert [list(check["inputs"]) for check in checks] == [["x", "weight"], ["x"]]


def test_forward_that_cannot_be_traced_asks_for_a_reference(mine: Path, exactref: Call) -> None:
    code, out, _ = exactref("init", "mine.py:outside")
    assert code == 0
    assert "a reference is needed" in out
    assert out.splitlines()[-1] == "name a reference in it, then: exactref check outside.yaml"
