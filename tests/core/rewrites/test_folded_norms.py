"""Norms of given statistics: what kernels fold is granted where PyTorch's function is called, and nowhere else."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels_core.reference import Check, reference
from kernels_core.rewrites.folded_norms import folded
from kernels_core.verify import verify

Tensor = torch.Tensor


def batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor) -> Tensor:
    return F.batch_norm(x, mean, var, weight, bias, False, 0.1, 1e-5)


def written_out(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias


def given(seed: int, *, affine: bool = True, images: bool = False) -> dict[str, Tensor | None]:
    generator = torch.Generator().manual_seed(seed)
    mean, weight, bias = torch.randn(3, 5, generator=generator)
    x = torch.randn((16, 5, 3, 3) if images else (144, 5), generator=generator) * 0.3
    x = x + (4 * mean).reshape(1, 5, *[1] * (x.dim() - 2))
    parameters = {"weight": weight, "bias": bias} if affine else {"weight": None, "bias": None}
    return {"x": x, **parameters, "mean": 4 * mean, "var": torch.rand(5, generator=generator) / 2 + 0.01}


def returned(check: Check, inputs: dict[str, Tensor | None], upstream: Tensor) -> dict[str, Tensor]:
    leaves = {n: None if t is None else t.clone().requires_grad_(n in check.wrt) for n, t in inputs.items()}
    output = batch_norm(**leaves)
    found = torch.autograd.grad(output, [leaves[n] for n in check.wrt], upstream)
    return {"output": output.detach(), **{f"grad_{n}": g for n, g in zip(check.wrt, found, strict=True)}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("images", [True, False])
def test_pytorchs_batch_norm_in_evaluation_is_covered(dtype: torch.dtype, affine: bool, images: bool) -> None:
    for seed in range(4):
        inputs = {n: None if t is None else t.to(dtype) for n, t in given(seed, affine=affine, images=images).items()}
        check = Check(reference(batch_norm), inputs, wrt=["x", "weight", "bias"] if affine else ["x"])
        upstream = torch.randn(inputs["x"].shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
        actual = returned(check, inputs, upstream)
        for name, result in check.both([upstream]).items():
            assert result.covers(actual[name]).all(), (seed, name)
        assert check.outputs()["output"].covers(actual["output"]).all()


def test_the_folded_form_is_granted_to_pytorchs_function_alone() -> None:
    inputs = given(0)
    folds = batch_norm(**inputs)
    assert not Check(reference(written_out), inputs).outputs()["output"].covers(folds).all()
    assert folded(Check(reference(written_out), inputs).forward) is None


def test_a_copy_of_the_mean_alone_is_no_norm() -> None:
    def with_copy(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return (x - mean.clone()) * weight + bias

    assert folded(Check(reference(with_copy), given(0)).forward) is None
    assert folded(Check(reference(batch_norm), given(0)).forward) is not None


def test_a_mean_in_bfloat16_and_another_eps_are_violated_and_the_usual_form_is_covered() -> None:
    inputs = given(1)
    result = Check(reference(batch_norm), inputs).outputs()["output"]
    x, weight, bias, mean, var = inputs.values()
    assert result.covers(written_out(x, weight, bias, mean, var)).all()
    assert not result.covers(written_out(x, weight, bias, mean.bfloat16().float(), var)).all()
    assert not result.covers((x - mean) / (torch.sqrt(var) + 1e-5) * weight + bias).all()


def test_a_folded_norm_far_from_zero_is_no_loss_of_precision_and_half_the_digits_are() -> None:
    generator = torch.Generator().manual_seed(11)
    mean = 3000 * torch.randn(8, generator=generator)
    x = mean + torch.randn(64, 8, generator=generator)
    inputs = {"x": x, "weight": torch.rand(8, generator=generator) + 1, "bias": torch.rand(8, generator=generator),
              "mean": mean, "var": torch.rand(8, generator=generator) + 0.5}  # fmt: skip
    wrt = ["x", "weight", "bias"]
    assert verify(batch_norm, inputs, wrt=wrt).covered

    def coarse(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        scale = (weight / torch.sqrt(var + 1e-5)).bfloat16().float()
        return x * scale + (bias - mean * scale)

    assert not verify(coarse, inputs, reference=batch_norm, wrt=wrt).covered
