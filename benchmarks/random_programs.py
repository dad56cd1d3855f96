"""Random programs, and legal evaluations of them: sums and products in other orders, with FMA, or rounded only once.

A program is a plain PyTorch function of three matrices, built from a seed. `AnyOrder` evaluates whatever runs within it
(forward and autograd's backward alike) in float32 (float64 for float64 programs) with every sum, mean and matrix
product in a permuted, reversed or blocked order, or in float64 with one rounding at the end: all of them are things
that a correct kernel may do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

Tensor = torch.Tensor
Step = Callable[[list[Tensor]], Tensor]


def _wide(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compute in float32 and round once, where PyTorch's 16-bit kernel does not (docs/findings.md)."""
    return lambda x: function(_accumulator(x)).to(x.dtype)


def _accumulator(x: Tensor) -> Tensor:
    """Return a tensor in the format in which sums of its values are formed."""
    return x if x.dtype is torch.float64 else x.float()


def _wide_both(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: function(x.float(), y.float()).to(x.dtype)


def _gram(x: Tensor) -> Tensor:
    """Return x x^T with rows of bounded size: a small positive semidefinite matrix."""
    rows = x / (1 + x.abs())
    return rows @ rows.mT


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda x: torch.exp(x.clamp(-20, 5)),
    "exp_half": lambda x: torch.exp(-x.abs()),
    "expm1": lambda x: torch.expm1(x.clamp(-20, 5)),
    "log": lambda x: torch.log(x.abs() + 0.25),
    "log1p": lambda x: torch.log1p(x.square()),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
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
    "cube": lambda x: x**3,
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
    "logsigmoid": torch.nn.functional.logsigmoid,
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
    "smooth_l1": lambda x, y: torch.nn.functional.smooth_l1_loss(x, y, reduction="none"),
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
    "logsumexp": lambda x: x + torch.logsumexp(x, -1, keepdim=True),
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
    "group_norm": _wide(lambda x: torch.nn.functional.group_norm(x, 1)),
    "conv1d": _wide(
        lambda x: torch.nn.functional.conv1d(x[:, None], torch.tensor([[[0.5, -1.0, 0.25]]]), padding=1)[:, 0]
    ),
    "avg_pool": _wide(lambda x: torch.nn.functional.avg_pool1d(x[:, None], 3, 1, 1)[:, 0]),
    "max_pool": lambda x: torch.nn.functional.max_pool1d(x[:, None], 3, 1, 1)[:, 0],
    "unfold": lambda x: x.unfold(-1, 1, 1).squeeze(-1).flip(0),
    "glu": _wide(lambda x: torch.nn.functional.glu(torch.cat((x, x.flip(-1)), -1), -1)),
    "fft": _wide(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1])),
    "inv": _wide(lambda x: torch.linalg.inv(_gram(x) + 4 * torch.eye(x.shape[0])) @ x),
    "cholesky": _wide(lambda x: torch.linalg.cholesky(_gram(x) + 4 * torch.eye(x.shape[0])) @ x),
    "logdet": _wide(lambda x: x * torch.logdet(_gram(x) + 4 * torch.eye(x.shape[0]))),
    "matrix_exp": _wide(lambda x: torch.linalg.matrix_exp(_gram(x) / (8 + _gram(x).detach().abs().sum())) @ x),
    "spectral": _wide(lambda x: x / (1 + torch.linalg.matrix_norm(x, 2))),
    "pinv": _wide(lambda x: torch.linalg.pinv(_gram(x) + 4 * torch.eye(x.shape[0])) @ x),
}


# PyTorch's trigamma, the derivative of digamma, is right to about 1e-9 only, also in float64 (docs/findings.md).
INACCURATE_IN_FLOAT64 = frozenset({"digamma"})


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
        values = [a, b, c]
        for name, i, j in steps:
            if name in BINARY:
                values.append(BINARY[name](values[i], values[j]))
            else:
                values.append((UNARY.get(name) or ROWS[name])(values[i]))
        return values[-1] + 0.5 * values[-2]

    return program, [name for name, _, _ in steps]


def random_inputs(seed: int, dtype: torch.dtype) -> list[Tensor]:
    """Return three matrices, their shape and scale drawn from the seed."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    shape = (draw.choice([1, 2, 3, 5]), draw.choice([1, 4, 7, 16, 33]))
    return [(torch.randn(shape, generator=generator) * draw.choice([0.1, 1, 1, 4])).to(dtype) for _ in range(3)]


def _without_memory(*values: Any) -> bool:
    """Return True where one is a zero that PyTorch's derivatives keep without memory, which cannot be read."""
    return any(isinstance(v, Tensor) and (v.is_meta or v._is_zerotensor()) for v in values)


class OverflowWatch(TorchDispatchMode):
    """Notices results that are infinite where every operand is finite: overflow of an intermediate is never legal."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and look at its result."""
        result = func(*args, **(kwargs or {}))
        if _without_memory(result, *pytree.tree_leaves(args)):
            return result
        if isinstance(result, Tensor) and result.is_floating_point() and not self.seen and bool(result.isinf().any()):
            tensors = [a for a in pytree.tree_leaves(args) if isinstance(a, Tensor) and a.is_floating_point()]
            self.seen = bool(tensors) and all(bool(t.isfinite().all()) for t in tensors)
        return result


class AnyOrder(TorchDispatchMode):
    """Evaluates sums, means and matrix products in an order drawn from a generator."""

    def __init__(self, seed: int) -> None:
        """Draw from this seed."""
        super().__init__()
        self.draw = random.Random(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the operations that have another legal order."""
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if not args or not isinstance(args[0], Tensor) or not args[0].is_floating_point() or _without_memory(*args):
            return func(*args, **kwargs)
        if name in ("mm", "bmm"):
            return self.product(args[0], args[1])
        if name in ("sum", "mean") and args[0].numel():
            return self.total(func, name, args, kwargs)
        if name in ("add", "mul", "exp", "tanh", "sigmoid", "div") and self.draw.random() < 0.2:
            return self.once(func, args, kwargs)
        return func(*args, **kwargs)

    def once(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """Evaluate in float64 and round once."""
        wide = [a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        return func(*wide, **kwargs).to(args[0].dtype)

    def order(self, n: int) -> list[list[int]]:
        """Return the indices 0..n-1 in blocks, in a permuted, reversed or natural order."""
        indices = list(range(n))
        how = self.draw.choice(["permuted", "reversed", "natural"])
        if how == "permuted":
            self.draw.shuffle(indices)
        elif how == "reversed":
            indices.reverse()
        block = self.draw.choice([n, 4, 1 + int(math.sqrt(n))])
        return [indices[i : i + block] for i in range(0, n, block)]

    def total(self, func: Any, name: str, args: Any, kwargs: Any) -> Tensor:
        """Sum or mean in the accumulator's format, in an order of its own."""
        x = args[0]
        dims = args[1] if len(args) > 1 and args[1] is not None else kwargs.get("dim")
        keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        dims = [d % x.dim() for d in dims] if dims else list(range(x.dim()))
        if not x.dim():
            return func(*args, **kwargs)
        kept = [d for d in range(x.dim()) if d not in dims]
        shape = [x.shape[d] if d in kept else 1 for d in range(x.dim())]
        columns = _accumulator(x).permute(*kept, *dims).reshape(*[x.shape[d] for d in kept], -1)
        value = self.add_up([columns[..., i] for i in range(columns.shape[-1])])
        if name == "mean":
            value = value / columns.shape[-1] if self.draw.random() < 0.5 else value * (1 / columns.shape[-1])
        value = value.reshape(shape) if keepdim else value.reshape([x.shape[d] for d in kept])
        return value.to(x.dtype)

    def add_up(self, terms: list[Tensor]) -> Tensor:
        """Add terms, block by block."""
        parts = []
        for block in self.order(len(terms)):
            part = terms[block[0]]
            for i in block[1:]:
                part = part + terms[i]
            parts.append(part)
        value = parts[0]
        for part in parts[1:]:
            value = value + part
        return value

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Matrix product in the accumulator's format, in an order of its own, with or without FMA."""
        x, y = _accumulator(a), _accumulator(b)
        fused, value = self.draw.random() < 0.5, torch.zeros(*a.shape[:-1], b.shape[-1], dtype=x.dtype)
        for block in self.order(a.shape[-1]):
            part = torch.zeros_like(value)
            for k in block:
                left, right = x[..., :, k : k + 1], y[..., k : k + 1, :]
                if fused:  # for float32: float64 holds the product
                    part = (part.double() + left.double() * right.double()).to(x.dtype)
                else:
                    part = part + left * right
            value = value + part
        return value.to(a.dtype)
