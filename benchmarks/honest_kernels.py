"""Kernels for the margins of the precision audit: honest orders of summation, and lower precision on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from kernels_core.audit import fingerprint

Tensor = torch.Tensor
Kernel = Callable[..., Tensor]

FAMILIES: Mapping[str, Callable[[torch.Generator, tuple[int, ...]], Tensor]] = {
    "normal": lambda g, shape: torch.randn(shape, generator=g),
    "positive": lambda g, shape: torch.rand(shape, generator=g),
    "scaled": lambda g, shape: torch.randn(shape, generator=g) * torch.exp(4 * torch.randn(shape[:1], generator=g))[
        (...,) + (None,) * (len(shape) - 1)
    ],
    "integers": lambda g, shape: torch.randint(-8, 9, shape, generator=g).float(),
    "constant": lambda g, shape: torch.full(shape, float(torch.rand((), generator=g))),
    "sparse": lambda g, shape: torch.randn(shape, generator=g) * (torch.rand(shape, generator=g) < 0.1),
    "shifted": lambda g, shape: torch.randn(shape, generator=g) + 100,
}  # fmt: skip


def _terms(a: Tensor, b: Tensor) -> np.ndarray:
    return (a[:, None, :] * b.T[None]).numpy()


def _last(terms: np.ndarray) -> Tensor:
    return torch.from_numpy(np.add.accumulate(terms, axis=-1)[..., -1].copy())


def pairwise(terms: np.ndarray) -> np.ndarray:
    """Sum over the last axis in a binary tree."""
    while terms.shape[-1] > 1:
        odd = terms[..., -1:] if terms.shape[-1] % 2 else terms[..., :0]
        even = terms.shape[-1] // 2 * 2
        terms = np.concatenate([terms[..., 0:even:2] + terms[..., 1:even:2], odd], -1)
    return terms[..., 0]


def blocked(terms: np.ndarray, size: int) -> Tensor:
    """Sum blocks one after the other, then the blocks."""
    parts = [np.add.accumulate(terms[..., i : i + size], axis=-1)[..., -1] for i in range(0, terms.shape[-1], size)]
    return _last(np.stack(parts, -1))


def fused(a: Tensor, b: Tensor) -> Tensor:
    """Sum with one rounding per multiply-add."""
    terms, total = a.double()[:, None, :] * b.double().T[None], torch.zeros(len(a), b.shape[1])
    for k in range(terms.shape[-1]):
        total = (total.double() + terms[..., k]).float()
    return total


PRODUCTS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "native": torch.mm,
    "sequential": lambda a, b: _last(_terms(a, b)),
    "descending": lambda a, b: _last(_terms(a, b)[..., ::-1]),
    "pairwise": lambda a, b: torch.from_numpy(pairwise(_terms(a, b)).copy()),
    "blocked": lambda a, b: blocked(_terms(a, b), 64),
    "split-K": lambda a, b: sum((x @ y for x, y in zip(a.chunk(4, 1), b.chunk(4, 0), strict=True)), torch.zeros(())),
    "lanes": lambda a, b: sum((_last(_terms(a[:, i::8], b[i::8])) for i in range(min(8, a.shape[1]))), torch.zeros(())),
    "fused": fused,
}
LOWER: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    name: lambda a, b, rounded=rounded: rounded(a) @ rounded(b) for name, rounded in fingerprint.FORMATS.items()
} | {"float16 out": lambda a, b: (a.half() @ b.half()).float()}


def matmul_with(multiply: Callable[[Tensor, Tensor], Tensor]) -> type[torch.autograd.Function]:
    """Return a matmul that forms output and gradients by `multiply`."""

    class Matmul(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return multiply(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return multiply(grad, b.T), multiply(a.T, grad)

    return Matmul


def online_softmax(x: Tensor) -> Tensor:
    """Softmax in one streaming pass with rescaling."""
    top, total = torch.full(x.shape[:-1], -torch.inf), torch.zeros(x.shape[:-1])
    for part in x.split(16, -1):
        higher = torch.maximum(top, part.amax(-1))
        total = total * torch.exp(top - higher) + torch.exp(part - higher.unsqueeze(-1)).sum(-1)
        top = higher
    return torch.exp(x - top.unsqueeze(-1)) / total.unsqueeze(-1)


def exp2_softmax(x: Tensor) -> Tensor:
    """Softmax by exp2 of scaled values, as Triton's exp computes."""
    power = torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
    return power / power.sum(-1, keepdim=True)


def exp2_silu(x: Tensor) -> Tensor:
    """SiLU by exp2; the product with log2 e errs by u |x|, within the granted accuracy of exp for small x only."""
    return x / (1 + torch.exp2(-1.4426950408889634 * x))


def logsumexp_softmax(x: Tensor) -> Tensor:
    """Softmax from the stored logsumexp."""
    return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))


def sequential_sum(x: Tensor) -> Tensor:
    """Sum the first dimension strictly in order."""

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.rows = len(x)
            return torch.from_numpy(np.add.accumulate(x.numpy(), axis=0)[-1].copy())

        @staticmethod
        def backward(ctx, grad):
            return grad.expand(ctx.rows, *grad.shape)

    return Sum.apply(x)


ROWWISE: Mapping[str, tuple[Kernel, Kernel]] = {
    "softmax online": (online_softmax, lambda x: torch.softmax(x, -1)),
    "softmax exp2": (exp2_softmax, lambda x: torch.softmax(x, -1)),
    "softmax logsumexp": (logsumexp_softmax, lambda x: torch.softmax(x, -1)),
    "silu exp2": (lambda x: exp2_silu(x.clamp(-4, 4)), lambda x: torch.nn.functional.silu(x.clamp(-4, 4))),
    "sum sequential": (sequential_sum, lambda x: x.sum(0)),
    "sum of squares": (lambda x: sequential_sum(x * x), lambda x: (x * x).sum(0)),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),) * 2,
}
