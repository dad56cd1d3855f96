"""Planted faults, one or more for each hypothesis: kernel, reference, arguments, the violated tensor, what is said."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    hypothesis: str
    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    row: str
    says: str


def seeded(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def function(forward: Callable[..., Any], backward: Callable[..., Any]) -> type[Function]:
    """Return a Function with this forward (of the inputs) and this backward (of saved inputs, then upstream)."""

    class Kernel(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(*ctx.saved_tensors, *grads)

    return Kernel


def matmul(A: Tensor, B: Tensor) -> Tensor:
    return A @ B


def matrices() -> tuple[Tensor, Tensor]:
    return seeded(6, 5), seeded(5, 7, seed=1)


def square_matrices() -> tuple[Tensor, Tensor]:
    return seeded(6, 6), seeded(6, 6, seed=1)


def square(x: Tensor) -> Tensor:
    return x * x


def vector() -> tuple[Tensor]:
    return (seeded(48),)


def bias(x: Tensor, b: Tensor) -> Tensor:
    return x + b


def rows_and_bias() -> tuple[Tensor, Tensor]:
    return seeded(11, 6), seeded(6, seed=1)


def norm(x: Tensor) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d * torch.rsqrt(d.square().mean(-1, keepdim=True) + 1e-5)


def normed(x: Tensor, variance: Callable[[Tensor], Tensor]) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d * variance(d)


def rows() -> tuple[Tensor]:
    return (seeded(5, 9) / 50 + 0.5,)


def rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def coarse_rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3)


def small_rows() -> tuple[Tensor]:
    return (seeded(4, 16) * 1e-3,)


def norm_backward(x: Tensor, g: Tensor) -> Tensor:
    """The gradient of `norm` with mean and variance taken for constants."""
    d = x - x.mean(-1, keepdim=True)
    return g * torch.rsqrt(d.square().mean(-1, keepdim=True) + 1e-5)


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attended(q, k, v, k.shape[-2] - q.shape[-2])


def attended(q: Tensor, k: Tensor, v: Tensor, diagonal: int) -> Tensor:
    s = q @ k.mT / math.sqrt(q.shape[-1])
    visible = torch.ones(s.shape[-2:], dtype=torch.bool).tril(diagonal)
    return torch.softmax(s.masked_fill(~visible, -math.inf), -1) @ v


def queries() -> tuple[Tensor, Tensor, Tensor]:
    return seeded(4, 8), seeded(7, 8, seed=1), seeded(7, 8, seed=2)


def padded_norm(x: Tensor) -> Tensor:
    n = x.shape[-1]
    row = F.pad(x, (0, 16 - n))
    d = row - row.sum(-1, keepdim=True) / n
    return (d * torch.rsqrt(d.square().sum(-1, keepdim=True) / n + 1e-5))[..., :n]


def without_last(t: Tensor, count: int) -> Tensor:
    return torch.cat([t[:-count], torch.zeros_like(t[-count:])])


def half(t: Tensor) -> Tensor:
    return t.half().float()


def half_product(A: Tensor, B: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    return (g.half() @ B.half().T).float(), A.T @ g


_KEPT: list[Tensor] = []


def first_result(x: Tensor) -> Tensor:
    """A kernel that keeps the result of its first call."""
    if not _KEPT:
        _KEPT.append(square(x / 2 + 1))
    return _KEPT[0].clone() + 0 * x


_CALLS: list[int] = []


def cold(x: Tensor) -> Tensor:
    """A kernel whose first call returns something else, in no simple relation to the result."""
    _CALLS.append(1)
    return square(x) + (0 if len(_CALLS) > 1 else torch.linspace(1, 2, len(x)).sin())


def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * y, x + y


# For each hypothesis a fault of its kin, which it must not claim.
NOT_CLAIMED = {
    "NaN": "zero", "zero": "sign", "sign": "factor", "sum and mean": "factor", "constant factor": "small noise",
    "transposed": "swapped", "swapped": "sign", "shift by one": "reversed", "reversed": "shift",
    "result rounded": "half inputs", "inputs rounded": "half product", "upstream ignored": "first",
    "derivative left out": "ones", "upstream as one number": "ones", "upstream in another order": "frozen",
    "one upstream lost": "both halved", "missing reduction": "last slice lost", "slice left out": "one slice",
    "tail of a sum": "last slice lost", "tail not written": "shift", "tail not read": "half inputs", "gelu": "erf lost",
    "statistics constant": "other rows", "variance": "outside", "epsilon elsewhere": "unbiased",
    "another epsilon": "unbiased", "padded lanes": "unbiased", "mask alignment": "mask inverted",
    "saved tensor overwritten": "factor", "stale": "passed", "depends on earlier calls": "stale",
}  # fmt: skip

# Hypotheses that look at the fault before they offer anything to be tested; the others offer it for that of their kin.
LOOK_FIRST = ("tail not written", "result rounded", "stale", "depends on earlier calls")

FAULTS = (
    Fault("nan", "NaN", lambda x: x * math.nan, square, vector, "output", "are NaN"),
    Fault("zero", "zero", lambda x: x * 0, square, vector, "output", "are zero"),
    Fault("sign", "sign", function(square, lambda x, g: -2 * x * g), square, vector, "grad_x", "the sign is wrong"),
    Fault("factor", "constant factor", function(square, lambda x, g: 3 * x * g), square, vector, "grad_x",
          "are 1.5 times"),
    Fault("third", "constant factor", function(square, lambda x, g: 2 / 3 * x * g), square, vector, "grad_x",
          "are 1/3 times"),
    Fault("logarithm", "constant factor", lambda x: (x * x + 1).log2(), lambda x: (x * x + 1).log(), vector, "output",
          "1 / ln 2 (1.4427)"),
    Fault("small factor", "constant factor", lambda x: 1.001 * x * x, square, vector, "output", "are 1.001 times"),
    Fault("scale", "constant factor", lambda q, k: q @ k.mT, lambda q, k: q @ k.mT / math.sqrt(q.shape[-1]),
          lambda: (seeded(6, 8), seeded(7, 8, seed=1)), "output", "the square root of 8 (2.82843) times"),
    Fault("sum for mean", "sum and mean", function(lambda x: x.mean(), lambda x, g: g.expand(x.shape)), torch.mean,
          vector, "grad_input", "so a sum in place of a mean"),
    Fault("mean for sum", "sum and mean", function(bias, lambda x, b, g: (g, g.mean(0))), bias, rows_and_bias, "grad_b",
          "so a mean in place of a sum"),
    Fault("transposed", "transposed", lambda A, B: (A @ B).T, matmul, square_matrices, "output", "transposed:"),
    Fault("transposed memory", "transposed", lambda A, B: (A @ B).T.reshape(6, 7), matmul, matrices, "output",
          "of the transposed matrix"),
    Fault("swapped", "swapped", function(matmul, lambda A, B, g: (A.T @ g, g @ B.T)), matmul, square_matrices, "grad_A",
          "those of grad_B"),
    Fault("shift", "shift by one", lambda x: torch.cat([x[:1] * 0, square(x)[:-1]]), square, vector, "output",
          "shifted by one"),
    Fault("reversed", "reversed", lambda x: square(x).flip(0), square, vector, "output", "in reversed order"),
    Fault("rounded", "result rounded", lambda x: half(x * x), square, vector, "output", "rounded to float16"),
    Fault("half product", "result rounded", function(matmul, half_product), matmul, matrices, "grad_A",
          "float16 values"),
    Fault("half inputs", "inputs rounded", lambda A, B: half(A) @ half(B), matmul, matrices, "output",
          "A and B rounded to float16"),
    Fault("half upstream", "inputs rounded", function(square, lambda x, g: 2 * x * g.bfloat16().float()), square,
          vector, "grad_x", "grad_output rounded to bfloat16"),
    Fault("ones", "upstream ignored", function(square, lambda x, g: 2 * x), square, vector, "grad_x",
          "grad_output ignored"),
    Fault("passed", "derivative left out", function(lambda x: x.clamp(-1, 1), lambda x, g: g.clone()),
          lambda x: x.clamp(-1, 1), vector, "grad_x", "grad_output as it came in"),
    Fault("first", "upstream as one number", function(square, lambda x, g: 2 * x * g[0]), square, vector, "grad_x",
          "its first element"),
    Fault("upstream sum", "upstream as one number", function(square, lambda x, g: 2 * x * g.sum()), square, vector,
          "grad_x", "its sum"),
    Fault("columns", "upstream in another order", function(square, lambda x, g: 2 * x * g.T.reshape(g.shape)), square,
          lambda: (seeded(5, 9),), "grad_x", "read column by column"),
    Fault("one lost", "one upstream lost", function(two, lambda x, y, g, h: (g * y, g * x)), two,
          lambda: (seeded(40), seeded(40, seed=1)), "grad_x", "grad_output[1] ignored"),
    Fault("one slice", "missing reduction", function(bias, lambda x, b, g: (g, g[0])), bias, rows_and_bias, "grad_b",
          "what the first slice along dimension 0 contributes"),
    Fault("last slice lost", "slice left out", function(bias, lambda x, b, g: (g, g[:-1].sum(0))), bias, rows_and_bias,
          "grad_b", "without the last slice"),
    Fault("tail of a sum", "tail of a sum", function(bias, lambda x, b, g: (g, g[:8].sum(0))), bias, rows_and_bias,
          "grad_b", "without the last 3 slices"),
    Fault("tail not written", "tail not written", lambda x: without_last(square(x), 5), square, vector, "output",
          "the last 5 of 48"),
    Fault("tail unchanged", "tail not written", lambda x: torch.cat([square(x)[:-5], x[-5:]]), square, vector, "output",
          "what x holds there"),
    Fault("tail not read", "tail not read", lambda A, B: A[:, :4] @ B[:4], matmul, matrices, "output",
          "the last slice of A along dimension 1 zero"),
    Fault("gelu", "gelu", lambda x: F.gelu(x, approximate="tanh"), gelu, vector, "output", "tanh against erf"),
    Fault("sigmoid", "gelu", lambda x: x * torch.sigmoid(1.702 * x), F.gelu, vector, "output", "sigmoid(1.702 x)"),
    Fault("frozen", "statistics constant", function(norm, norm_backward), norm, rows, "grad_x",
          "mean and variance treated as constant"),
    Fault("unbiased", "variance",
          lambda x: normed(x, lambda d: torch.rsqrt(d.square().sum(-1, keepdim=True) / 8 + 1e-5)), norm, rows, "output",
          "n - 1 in place of n"),
    Fault("outside", "epsilon elsewhere",
          lambda x: normed(x, lambda d: 1 / (d.square().mean(-1, keepdim=True).sqrt() + 1e-5)), norm, rows, "output",
          "outside of the root"),
    Fault("count", "epsilon elsewhere",
          lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) / (x.shape[-1] + 1e-3)), coarse_rms, small_rows,
          "output", "added to the number of elements"),
    Fault("other epsilon", "another epsilon", lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6), rms,
          small_rows, "output", "epsilon 1e-06"),
    Fault("padded", "padded lanes", padded_norm, norm, lambda: (seeded(5, 9) + 1,), "output", "from 9 to 16"),
    Fault("alignment", "mask alignment", lambda q, k, v: attended(q, k, v, 0), attention, queries, "output",
          "by the difference of the two lengths"),
    Fault("diagonal", "mask alignment", lambda q, k, v: attended(q, k, v, 2), attention, queries, "output", "by one"),
    Fault("overwritten", "saved tensor overwritten", function(square, lambda x, g: 2 * (x * x) * g), square, vector,
          "grad_x", "output in the place of x"),
    Fault("stale", "stale", first_result, square, vector, "output", "kept from an earlier call"),
    Fault("cold", "depends on earlier calls", cold, square, vector, "output", "when the same call is made again"),
)  # fmt: skip

# Faults that no hypothesis names.
UNNAMED = (
    Fault("small noise", "", lambda x: x * x * (1 + torch.arange(48) / 1e4), square, vector, "output", ""),
    Fault("both halved", "", function(two, lambda x, y, g, h: (g * y + h.sin(), g * x + h)), two,
          lambda: (seeded(40), seeded(40, seed=1)), "grad_x", ""),
    Fault("erf lost", "", lambda x: x * (1 + torch.tanh(x)) / 2, gelu, vector, "output", ""),
    Fault("other rows", "", function(norm, lambda x, g: norm_backward(x.flip(0), g)), norm, rows, "grad_x", ""),
    Fault("mask inverted", "", lambda q, k, v: attended(q.flip(0), k, v, 3), attention, queries, "output", ""),
)  # fmt: skip
