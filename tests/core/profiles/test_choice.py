"""`profile: auto` picks by device and PyTorch's own flags, and says why; it changes none of them."""

from collections.abc import Iterator

import pytest
import torch

from kernels_core.profiles import pick, resolve

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def flags() -> Iterator[None]:
    """Leave PyTorch's flags as they were."""
    matmul = torch.backends.cuda.matmul
    names = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    before, precision = {name: getattr(matmul, name) for name in names}, torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = cudnn
    for name, value in before.items():
        setattr(matmul, name, value)


def test_cpu_is_ieee_and_cuda_is_cuda(flags: None) -> None:
    torch.backends.cudnn.allow_tf32 = False
    assert (pick(CPU, {torch.float32}).title, pick(CUDA, {torch.float32}).title) == ("ieee", "cuda")
    assert pick(torch.device("mps"), {torch.float32}).reason == "auto: no profile is known for mps"


def test_tf32_products_are_granted_where_pytorch_allows_them(flags: None) -> None:
    torch.set_float32_matmul_precision("high")
    found = pick(CUDA, {torch.float32})
    assert found.matmul_input == "tf32"
    assert "torch.backends.cuda.matmul.allow_tf32 allows tf32" in found.reason
    assert not pick(CUDA, {torch.bfloat16}).matmul_input


def test_bfloat16_products_are_granted_on_the_cpu_where_pytorch_allows_them(flags: None) -> None:
    torch.set_float32_matmul_precision("medium")
    assert pick(CPU, {torch.float32}).matmul_input == "bfloat16"


def test_convolutions_have_a_flag_of_their_own(flags: None) -> None:
    torch.backends.cudnn.allow_tf32 = True
    assert pick(CUDA, {torch.float32}).title == "cuda,convolution_input=tf32"


def test_reduced_precision_reduction_splits_k_of_its_own_dtype_only(flags: None) -> None:
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    assert [pick(CUDA, {dtype}).split_k for dtype in (torch.bfloat16, torch.float16)] == [2, 1]
    assert pick(CUDA, {torch.bfloat16}).reason.endswith("allow_bf16_reduced_precision_reduction is on")


def test_amx_is_picked_for_bfloat16_on_a_machine_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert [pick(CPU, {dtype}).name for dtype in (torch.bfloat16, torch.float32)] == ["amx", "ieee"]


def test_auto_takes_knobs(flags: None) -> None:
    assert resolve("auto,split_k=4", device=CPU).title == "ieee,split_k=4"
    assert resolve({"order": "pairwise"}, device=CPU).title == "ieee,order=pairwise"


def test_no_flag_is_changed(flags: None) -> None:
    torch.set_float32_matmul_precision("high")
    pick(CUDA, {torch.float32, torch.bfloat16})
    assert torch.get_float32_matmul_precision() == "high"
