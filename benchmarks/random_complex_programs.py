"""Random programs of three complex matrices, built from a seed like the real ones in random_programs.py."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from benchmarks.random_programs import chained

Tensor = torch.Tensor


def _size(x: Tensor) -> Tensor:
    """Return |x|^2 as a sum of two squares."""
    return x.real.square() + x.imag.square()


def _turn(angle: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(angle), angle)


def _shrunk(x: Tensor) -> Tensor:
    """Return x with a modulus below 1."""
    return x / (1 + x.abs())


def _attention(x: Tensor) -> Tensor:
    weights = torch.softmax((x @ x.mH).real / x.shape[-1], -1)
    return weights.to(x.dtype) @ x


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda x: torch.exp(_shrunk(x)),
    "log": lambda x: torch.log(x + 0.5),
    "sqrt": lambda x: torch.sqrt(x + (1 + 1j)),
    "sin": lambda x: torch.sin(_shrunk(x)),
    "cos": lambda x: torch.cos(_shrunk(x)),
    "sinh": lambda x: torch.sinh(_shrunk(x)),
    "cosh": lambda x: torch.cosh(_shrunk(x)),
    "tanh": lambda x: torch.tanh(_shrunk(x)),
    "sigmoid": lambda x: torch.sigmoid(_shrunk(x)),
    "atan": lambda x: torch.atan(0.5 * _shrunk(x)),
    "atanh": lambda x: torch.atanh(0.5 * _shrunk(x)),
    "asinh": torch.asinh,
    "acosh": lambda x: torch.acosh(x + (2 + 1j)),
    "expm1": lambda x: torch.expm1(_shrunk(x)),
    "log1p": lambda x: torch.log1p(0.9 * _shrunk(x)),
    "exp2": lambda x: torch.exp2(_shrunk(x)),
    "log2": lambda x: torch.log2(x + (0.5 + 1j)),
    "power": lambda x: (x + (2 + 1j)) ** 1.5,
    "square": torch.square,
    "cube": lambda x: x * x * x,
    "reciprocal": lambda x: torch.reciprocal(x + (3 - 2j)),
    "inverse": lambda x: x.conj() / (_size(x) + 0.5),
    "conj": lambda x: x.conj() * (0.5 + 1j),
    "neg": torch.neg,
    "scale": lambda x: x * (0.3 - 0.4j),
    "halve": lambda x: x * 0.5,
    "shift": lambda x: x + (0.7 - 0.2j),
    "swap": lambda x: torch.complex(x.imag, x.real),
    "modulus": lambda x: x * x.abs(),
    "sgn": lambda x: torch.sgn(x + 0.25),
    "phase": lambda x: _turn(torch.angle(x + 0.25)),
    "crelu": lambda x: torch.view_as_complex(torch.relu(torch.view_as_real(x))),
    "mod_relu": lambda x: x * torch.relu(x.abs() - 0.5) / (x.abs() + 0.125),
    "where": lambda x: torch.where(x.real > 0.1, x, x.conj()),
    "polar": lambda x: torch.polar(x.abs() + 0.1, x.real),
    "real": lambda x: torch.complex(torch.tanh(x.real), torch.zeros_like(x.imag)),
    "pairs": lambda x: torch.view_as_complex(torch.view_as_real(x).flip(-1).contiguous()),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "mul_conj": lambda x, y: x * y.conj(),
    "div": lambda x, y: x / (y + (2 + 3j)),
    "div_real": lambda x, y: x / (y.abs() + 0.5),
    "matmul": lambda x, y: x @ y.mH @ y,
    "rotate": lambda x, y: x * _turn(y.real),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5),
    "gate": lambda x, y: x * torch.sigmoid(y.real),
    "hypot": lambda x, y: torch.sqrt(_size(x) + _size(y) + 0.125) * x,
    "join": lambda x, y: torch.complex(x.real, y.imag),
}
ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x - x.mean(-1, keepdim=True),
    "sum": lambda x: x / (1 + x.abs().sum(0, keepdim=True)),
    "total": lambda x: x + 0.1 * x.sum(-1, keepdim=True),
    "rms": lambda x: x * torch.rsqrt(_size(x).mean(-1, keepdim=True) + 1e-3),
    "norm": lambda x: x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 0.1),
    "cumsum": lambda x: torch.cumsum(x, -1) / x.shape[-1],
    "roll": lambda x: torch.roll(x, 2, -1),
    "flip": lambda x: torch.flip(x, (-1,)),
    "cat": lambda x: torch.cat([x[:, 1:], x[:, :1]], -1),
    "gather": lambda x: x[:, torch.arange(x.shape[-1] - 1, -1, -1)],
    "fft": lambda x: torch.fft.fft(x, norm="ortho"),
    "ifft": lambda x: torch.fft.ifft(x) * 2,
    "convolve": lambda x: torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(x.conj())) / x.shape[-1],
    "rfft": lambda x: torch.fft.ifft(torch.fft.fft(x.real) * 0.5),
    "gram": lambda x: x @ x.mH @ x / x.shape[-1],
    "attention": _attention,
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1))[:, 1:-1],
}


def random_complex_program(
    seed: int, *, elementwise: bool = False, length: int = 5
) -> tuple[Callable[..., Tensor], list[str]]:
    """Return a function of three complex matrices of one shape, and the names of the operations in it.

    One program in four returns a real matrix, the modulus or a part of its result.
    """
    draw = random.Random(seed)
    steps: list[tuple[str, int, int]] = []
    for count in range(draw.randint(2, length)):
        kind = draw.random()
        table = UNARY if kind < 0.5 else BINARY if kind < 0.75 or elementwise else ROWS
        names = [name for name in table if not (elementwise and name == "matmul")]
        steps.append((draw.choice(names), draw.randrange(3 + count), draw.randrange(3 + count)))
    ending = draw.choice([None] * 9 + [torch.abs, torch.real, torch.imag])

    def program(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        result = chained(steps, {**UNARY, **ROWS}, BINARY, [a, b, c])
        return result if ending is None else ending(result) * 1.0

    return program, [name for name, _, _ in steps]


def random_complex_inputs(seed: int, dtype: torch.dtype) -> list[Tensor]:
    """Return three complex matrices, their shape and scale drawn from the seed."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    shape = (draw.choice([1, 2, 3, 5]), draw.choice([1, 4, 7, 12]))
    scales = [draw.choice([0.1, 1, 1, 2]) for _ in range(3)]
    return [(torch.randn(shape, generator=generator, dtype=torch.complex128) * s).to(dtype) for s in scales]
