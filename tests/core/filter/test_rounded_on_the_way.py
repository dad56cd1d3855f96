"""16-bit kernels of PyTorch that round on the way (docs/findings.md): violated, while float32 rounded once is covered.

Where the formula is known that the kernel follows in 16-bit steps, it returns the very same bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kernels_core.coverage import Element
from kernels_core.reference import reference

Tensor = torch.Tensor
BOTH = (torch.bfloat16, torch.float16)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@dataclasses.dataclass(frozen=True)
class Finding:
    """One kernel: its function, inputs, which gradient is meant (None: the output) and its 16-bit steps if known."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    gradient: int | None = None
    steps: Callable[..., Tensor] | None = None
    dtypes: tuple[torch.dtype, ...] = BOTH


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a[:, i] * b[:, j] - a[:, j] * b[:, i] for i, j in ((1, 2), (2, 0), (0, 1))], 1)


def _embedding_bag(weight: Tensor) -> Tensor:
    return F.embedding_bag(torch.tensor([[0, 0, 1, 0, 2, 0]] * 6), weight, mode="mean")


GRID = uniform(1, 4, 4, 2) * 1.6 - 0.8
FINDINGS: dict[str, Finding] = {
    "batch_norm": Finding(lambda x: F.batch_norm(x, None, None, training=True), (3 + normal(64, 2),)),
    "cross": Finding(lambda a, b: torch.linalg.cross(a, b), (normal(64, 3), normal(64, 3, seed=1)), steps=_cross),
    "addmv": Finding(
        lambda y, a, x: torch.addmv(y, a, x, beta=0.2, alpha=0.6), (normal(64), normal(64, 8), normal(8, seed=2))
    ),
    "matrix_exp": Finding(lambda a: torch.linalg.matrix_exp(a), (torch.tensor([[0.0, 1.0], [-1.0, 0.0]]),)),
    "binary_cross_entropy_with_logits": Finding(
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"),
        (normal(64), uniform(64)),
        steps=lambda x, t: (1 - t) * x - F.logsigmoid(x),
    ),
    "binary_cross_entropy": Finding(
        lambda p, t: F.binary_cross_entropy(p, t, reduction="none"),
        (uniform(64) * 0.9 + 0.05, uniform(64, seed=1)),
        gradient=1,
    ),
    "soft_margin_loss": Finding(
        lambda x: F.soft_margin_loss(x, torch.ones_like(x), reduction="none"),
        (4 * normal(64),),
        steps=lambda x: torch.log1p(torch.exp(-x)),
    ),
    "glu": Finding(lambda x: F.glu(x), (normal(128),), gradient=0),
    "interpolate": Finding(lambda x: F.interpolate(x, size=(7, 7), mode="bicubic"), (normal(1, 1, 5, 5),)),
    "grid_sample": Finding(lambda x, g: F.grid_sample(x, g, align_corners=False), (normal(1, 1, 8, 8), GRID)),
    "mvlgamma": Finding(lambda x: torch.mvlgamma(x, 3), (uniform(64) * 4 + 1.5,)),
    "embedding_bag": Finding(_embedding_bag, (normal(4, 8),), gradient=0),
    "logaddexp": Finding(
        lambda a, b: torch.logaddexp(a, b), (torch.full((4,), -8.0), torch.full((4,), 4.0)), 0, dtypes=(torch.float16,)
    ),
    "polygamma": Finding(
        lambda x: torch.polygamma(3, x),
        (uniform(64) * 8 + 1,),
        steps=lambda x: 6 * torch.special.zeta(4.0, x.float()).to(x),
    ),
    "pow": Finding(lambda x: x**3, (normal(64),), steps=lambda x: x * x * x, dtypes=(torch.bfloat16,)),
    "xlog1py": Finding(
        lambda x, y: torch.special.xlog1py(x, y), (normal(64), uniform(64)), steps=lambda x, y: x * torch.log1p(y)
    ),
}
CASES = [pytest.param(f, d, id=f"{name} {d}") for name, f in FINDINGS.items() for d in f.dtypes]


def run(finding: Finding, inputs: list[Tensor], upstream: Tensor) -> Tensor:
    leaves = [x.clone().requires_grad_() for x in inputs]
    output = finding.function(*leaves)
    if finding.gradient is None:
        return output.detach()
    return torch.autograd.grad(output, leaves[finding.gradient], upstream.to(output.dtype))[0]


@pytest.mark.parametrize(("finding", "dtype"), CASES)
def test_a_kernel_that_rounds_on_the_way_is_violated_and_one_that_rounds_once_is_covered(
    finding: Finding, dtype: torch.dtype
) -> None:
    inputs = [x.to(dtype) for x in finding.inputs]
    upstream = normal(*finding.function(*inputs).shape, seed=5).to(dtype)
    actual, once = run(finding, inputs, upstream), run(finding, [x.float() for x in inputs], upstream).to(dtype)
    ref: Any = reference(finding.function)
    if finding.gradient is None:
        result = ref(*inputs)
    else:
        result = list(ref.backward(*inputs, upstream).values())[finding.gradient]
    assert bool((result.verdict(actual) == Element.VIOLATED).any())
    assert bool((result.verdict(once) == Element.COVERED).all())
    if finding.steps is not None:
        assert torch.equal(finding.steps(*inputs), actual)
