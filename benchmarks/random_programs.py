"""Random programs: plain PyTorch functions of three real matrices, built from a seed.

Those of complex matrices are in random_complex_programs.py, those with 8-bit tensors in random_float8_programs.py; what
a correct kernel may return for one of them is evaluated in legal_evaluations.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence

import torch

Tensor = torch.Tensor
Step = Callable[[list[Tensor]], Tensor]


def _wide(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compute in float32 and round once, where PyTorch's 16-bit kernel does not (docs/findings.md)."""
    return lambda x: function(accumulator(x)).to(x.dtype)


def accumulator(x: Tensor) -> Tensor:
    """Return a tensor in the format in which sums of its values are formed."""
    return x if x.is_complex() or x.dtype is torch.float64 else x.float()


def _wide_in_float16(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compute in float32 and round once where PyTorch's float16 kernel does not, and its bfloat16 one does."""

    def apply(*tensors: Tensor) -> Tensor:
        half = tensors[0].dtype is torch.float16
        return function(*(accumulator(t) if half else t for t in tensors)).to(tensors[0].dtype)

    return apply


def _wide_both(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: function(accumulator(x), accumulator(y)).to(x.dtype)


def _gram(x: Tensor) -> Tensor:
    """Return x x^T with rows of bounded size: a small positive semidefinite matrix."""
    rows = x / (1 + x.abs())
    return rows @ rows.mT


def _exponential(x: Tensor) -> Tensor:
    """Return one of a pair of exponentials: PyTorch's of a single matrix is wrong (docs/findings.md, 42)."""
    return torch.linalg.matrix_exp(torch.stack((x, x)))[0]


def _filtered(x: Tensor, taps: Tensor) -> Tensor:
    return torch.nn.functional.conv1d(x[:, None], taps[None, None], padding=1)[:, 0]


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda x: torch.exp(x.clamp(-20, 5)),
    "exp_half": lambda x: torch.exp(-x.abs()),
    "expm1": lambda x: torch.expm1(x.clamp(-20, 5)),
    "log": lambda x: torch.log(x.abs() + 0.25),
    "log1p": lambda x: torch.log1p(x.square()),
    "tanh": torch.tanh,
    "sigmoid": _wide_in_float16(torch.sigmoid),  # findings 10 and 12
    "softplus": torch.nn.functional.softplus,
    "sqrt": lambda x: torch.sqrt(x.square() + 0.01),
    "rsqrt": lambda x: torch.rsqrt(x.square() + 0.1),
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": _wide(torch.erf),
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "leaky": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "abs": torch.abs,
    "neg": torch.neg,
    "square": torch.square,
    "cube": _wide(lambda x: x**3),  # finding 55
    "reciprocal": lambda x: 1 / (x.square() + 0.5),
    "scale": lambda x: x * 0.37,
    "shift": lambda x: x + 0.7,
    "clamp": lambda x: x.clamp(-1.1, 0.9),
    "where": lambda x: torch.where(x > 0.3, x * 2, x - 1),
    "atan": torch.atan,
    "asinh": _wide(torch.asinh),
    "atanh": _wide(lambda x: torch.atanh(x.clamp(-0.9, 0.9))),
    "acos": _wide(lambda x: torch.acos(x.clamp(-0.9, 0.9))),
    "sinh": lambda x: torch.sinh(x.clamp(-5, 5)),
    "tan": lambda x: torch.tan(x.clamp(-1, 1)),
    "exp2": lambda x: torch.exp2(x.clamp(-20, 5)),
    "log2": lambda x: torch.log2(x.abs() + 0.25),
    "erfc": _wide(torch.erfc),
    "erfinv": _wide(lambda x: torch.erfinv(x.clamp(-0.9, 0.9))),
    "lgamma": _wide(lambda x: torch.lgamma(x.abs() + 0.5)),
    "digamma": _wide(lambda x: torch.digamma(x.abs() + 0.5)),
    "i0e": _wide(lambda x: torch.special.i0e(x)),
    "ndtr": _wide(lambda x: torch.special.ndtr(x)),
    "entr": _wide(lambda x: torch.special.entr(x.abs() + 0.1)),
    "sinc": _wide(lambda x: torch.sinc(x)),
    "logsigmoid": _wide(torch.nn.functional.logsigmoid),  # finding 56
    "elu": _wide(torch.nn.functional.elu),
    "selu": _wide(torch.nn.functional.selu),
    "mish": _wide(torch.nn.functional.mish),
    "hardswish": torch.nn.functional.hardswish,
    "softsign": torch.nn.functional.softsign,
    "tanhshrink": _wide(torch.nn.functional.tanhshrink),
    "softshrink": torch.nn.functional.softshrink,
    "relu6": torch.nn.functional.relu6,
    "logit": _wide(lambda x: torch.logit(torch.sigmoid(x), eps=0.01)),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, y: x / (y.abs() + 0.5),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "logaddexp": torch.logaddexp,
    "matmul": lambda x, y: x @ y.transpose(-1, -2) @ y if x.dim() == 2 else x * y,
    "hypot": lambda x, y: torch.sqrt(x * x + y * y + 0.125),
    "atan2": _wide_both(lambda x, y: torch.atan2(x, y.abs() + 0.5)),
    "xlogy": _wide_both(lambda x, y: torch.xlogy(x, y.abs() + 0.5)),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "pow": _wide_both(lambda x, y: torch.pow(x.abs() + 0.5, y.clamp(-3, 3))),
    "fmin": torch.fmin,
    "copysign": torch.copysign,
    "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5),
    "smooth_l1": _wide_in_float16(lambda x, y: torch.nn.functional.smooth_l1_loss(x, y, reduction="none")),
    "cosine": _wide_both(lambda x, y: x * torch.nn.functional.cosine_similarity(x, y, dim=-1).unsqueeze(-1)),
    "solve": _wide_both(lambda x, y: torch.linalg.solve(_gram(x) + 4 * torch.eye(x.shape[0]), y)),
    "cdist": _wide_both(lambda x, y: x * torch.cdist(x, y + 8).mean(-1, keepdim=True)),
}
ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": _wide(lambda x: torch.log_softmax(x, -1)),
    "mean": lambda x: x - x.mean(-1, keepdim=True),
    "sum": lambda x: x / (1 + x.abs().sum(0, keepdim=True)),
    "amax": lambda x: x - x.amax(-1, keepdim=True),
    "rms": lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3),
    "layer_norm": _wide(lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:])),
    "logsumexp": lambda x: x + torch.logsumexp(accumulator(x), -1, keepdim=True).to(x.dtype),  # finding 54
    "norm": lambda x: x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 0.1),
    "std": lambda x: x / (x.std(-1, keepdim=True, correction=0) + 0.1),
    "cumsum": lambda x: torch.cumsum(x, -1) / x.shape[-1],
    "roll": lambda x: torch.roll(x, 2, -1),
    "flip": lambda x: torch.flip(x, (-1,)),
    "sort": lambda x: torch.sort(x, -1).values,
    "gather": lambda x: x[:, torch.arange(x.shape[-1] - 1, -1, -1)],
    "index_add": lambda x: torch.zeros_like(x).index_add(0, torch.arange(x.shape[0]) // 2, x),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1))[:, 1:-1],
    "cat": lambda x: torch.cat([x[:, 1:], x[:, :1]], -1),
    "cumprod": _wide(lambda x: torch.cumprod(x.clamp(-1.1, 1.1), -1)),
    "prod": _wide(lambda x: x + torch.prod(x.clamp(-1.1, 1.1), -1, keepdim=True)),
    "cummax": lambda x: torch.cummax(x, -1).values,
    "logcumsumexp": _wide(lambda x: torch.logcumsumexp(x, -1)),
    "topk": lambda x: x - torch.topk(x, min(2, x.shape[-1]), -1).values.sum(-1, keepdim=True),
    "median": lambda x: x - torch.median(x, -1, keepdim=True).values,
    "renorm": _wide(lambda x: torch.renorm(x, 2, 0, 1.0)),
    "group_norm": _wide(lambda x: torch.nn.functional.group_norm(torch.cat((x, 2 * x)), 1)[: x.shape[0]]),
    "conv1d": _wide(lambda x: _filtered(x, torch.tensor([0.5, -1.0, 0.25], dtype=x.dtype))),
    "avg_pool": _wide(lambda x: torch.nn.functional.avg_pool1d(x[:, None], 3, 1, 1)[:, 0]),
    "max_pool": lambda x: torch.nn.functional.max_pool1d(x[:, None], 3, 1, 1)[:, 0],
    "unfold": lambda x: x.unfold(-1, 1, 1).squeeze(-1).flip(0),
    "glu": _wide(lambda x: torch.nn.functional.glu(torch.cat((x, x.flip(-1)), -1), -1)),
    "fft": _wide(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1])),
    "inv": _wide(lambda x: torch.linalg.inv(_gram(x) + 4 * torch.eye(x.shape[0])) @ x),
    "cholesky": _wide(lambda x: torch.linalg.cholesky(_gram(x) + 4 * torch.eye(x.shape[0])) @ x),
    "logdet": _wide(lambda x: x * torch.logdet(_gram(x) + 4 * torch.eye(x.shape[0]))),
    "matrix_exp": _wide(lambda x: _exponential(_gram(x) / (8 + _gram(x).detach().abs().sum())) @ x),
    "spectral": _wide(lambda x: x / (1 + torch.linalg.matrix_norm(x, 2))),
    "pinv": _wide(lambda x: torch.linalg.pinv(_gram(x) + 4 * torch.eye(x.shape[0])) @ x),
}


# PyTorch's trigamma, the derivative of digamma, is right to about 1e-9 only, also in float64 (docs/findings.md).
INACCURATE_IN_FLOAT64 = frozenset({"digamma"})


def chained(
    steps: Sequence[tuple[str, int, int]],
    of_one: Mapping[str, Callable[[Tensor], Tensor]],
    of_two: Mapping[str, Callable[[Tensor, Tensor], Tensor]],
    inputs: Sequence[Tensor],
) -> Tensor:
    """Return the last value and half the one before it, each step an operation on earlier values."""
    values = list(inputs)
    for name, i, j in steps:
        values.append(of_two[name](values[i], values[j]) if name in of_two else of_one[name](values[i]))
    return values[-1] + 0.5 * values[-2]


def random_program(
    seed: int, *, elementwise: bool = False, length: int = 5, leave_out: Collection[str] = ()
) -> tuple[Callable[..., Tensor], list[str]]:
    """Return a function of three matrices of one shape, and the names of the operations in it."""
    draw = random.Random(seed)
    steps: list[tuple[str, int, int]] = []
    for count in range(draw.randint(2, length)):
        kind = draw.random()
        table = UNARY if kind < 0.5 else BINARY if kind < 0.75 or elementwise else ROWS
        names = [n for n in table if n not in leave_out and not (elementwise and n == "matmul")]
        steps.append((draw.choice(names), draw.randrange(3 + count), draw.randrange(3 + count)))

    def program(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return chained(steps, {**UNARY, **ROWS}, BINARY, [a, b, c])

    return program, [name for name, _, _ in steps]


def random_inputs(seed: int, dtype: torch.dtype) -> list[Tensor]:
    """Return three matrices, their shape and scale drawn from the seed."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    shape = (draw.choice([1, 2, 3, 5]), draw.choice([1, 4, 7, 16, 33]))
    return [(torch.randn(shape, generator=generator) * draw.choice([0.1, 1, 1, 4])).to(dtype) for _ in range(3)]
