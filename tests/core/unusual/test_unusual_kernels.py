"""Right kernels by unusual algorithms are covered; kernels with a small slip are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.kernel.call import draw_upstream, run_kernel
from kernels_core.report import Verdict
from kernels_core.verify import prepared, verify
from tests.core.unusual import kernels

Tensor = torch.Tensor


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.randn(shape, generator=generator).to(dtype)


def coins(*shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.rand(shape, generator=generator) < 0.7


INPUTS = {
    kernels.chain: (normal(16, 9),),
    kernels.softmax: (normal(24, 120),),
    kernels.running_means: (normal(12, 5), normal(12, 5)),
    kernels.product: (normal(8, 15), normal(15, 9)),
    kernels.rms_norm: (normal(6, 64), normal(64)),
    kernels.layer_norm: (normal(32, 48), normal(48), normal(48)),
    kernels.dense: (normal(9, 7), normal(9, 7), normal(9)),
    kernels.total: (normal(16, 300),),
    kernels.variance: (normal(16, 100),),
    kernels.attention: (normal(2, 9, 8), normal(2, 11, 8), normal(2, 11, 8)),
    kernels.dropout: (normal(12, 9), coins(12, 9)),
}
RIGHT = {
    "kahan_sum": kernels.total,
    "streaming_softmax_in_base_2": kernels.softmax,
    "product_in_five_parts": kernels.product,
    "variance_by_updates": kernels.variance,
    "RecomputedNorm": kernels.layer_norm,
    "RecomputedAttention": kernels.attention,
    "dropout_as_a_product": kernels.dropout,
    "attention_normalised_last": kernels.attention,
    "running_means_by_triangles": kernels.running_means,
}
WRONG = {
    "chain_with_one_half_step": kernels.chain,
    "softmax_whose_last_block_drops_a_term": kernels.softmax,
    "running_means_one_row_early": kernels.running_means,
    "rms_norm_without_eps": kernels.rms_norm,
    "BiasSummedOverTheWrongAxis": kernels.dense,
    "MaskWithItsEdge": kernels.dense,
    "ScaledTwice": kernels.attention,
    "biased_variance": kernels.variance,
    "HalfInnerSum": kernels.softmax,
    "layer_norm_with_one_coarse_row": kernels.layer_norm,
}


def drawn(reference: Callable[..., Tensor]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    names = reference.__code__.co_varnames
    return {name: draw(generator) for name, draw in zip(names, INPUTS[reference], strict=False)}


def violated(kernel: Callable[..., Tensor], reference: Callable[..., Tensor], inputs: dict[str, Tensor]) -> bool:
    """Return True where an element is violated, without looking for the cause."""
    check = prepared(kernel, inputs, reference=reference)
    upstream = draw_upstream(check, 0)
    outputs, gradients = run_kernel(kernel, inputs, check.arguments, check, upstream)
    found = {**outputs, **(gradients or {})}
    return any(bool((r.verdict(found[n]) == Element.VIOLATED).any()) for n, r in check.both(upstream).items())


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernel_by_another_algorithm_is_covered(name: str) -> None:
    report = verify(getattr(kernels, name), drawn(RIGHT[name]), reference=RIGHT[name])
    assert {row.verdict for row in report.tensors} == {Verdict.COVERED}


@pytest.mark.parametrize("name", WRONG)
def test_kernel_with_a_small_slip_is_violated(name: str) -> None:
    assert violated(getattr(kernels, name), WRONG[name], drawn(WRONG[name]))


def test_half_accumulator_of_fifteen_terms_is_violated() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (normal(*shape, dtype=torch.float16)(generator) for shape in ((8, 15), (15, 9)))
    assert violated(kernels.product_in_a_half_accumulator, kernels.product, {"a": a, "b": b})
