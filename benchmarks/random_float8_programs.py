"""Random programs with 8-bit tensors as kernels have them: dequantize, compute in float32, quantize.

Inputs are 8-bit tensors with a scale, or wider ones; results are quantized with a scale per tensor or one per row
that is computed from the values, and overflow as is declared; an input may be rounded to 8 bit and back first.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import torch

from benchmarks.random_programs import random_inputs, random_program
from kernels_core.float8 import float8_cast
from kernels_core.formats import format_of

Tensor = torch.Tensor
WIDER = (torch.float32, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class Quantization:
    """How a result becomes 8 bit.

    Attributes:
        dtype: the 8-bit format.
        overflow: "saturate", "nan" or "inf"; None for what `.to` does.
        scale: per tensor; None for one per row, the largest modulus over the largest value of the format.
    """

    dtype: torch.dtype
    overflow: str | None
    scale: float | None

    def scale_of(self, x: Tensor) -> Tensor | float:
        """Return the scale for these values."""
        if self.scale is not None:
            return self.scale
        return (x.abs().amax(-1, keepdim=True) / format_of(self.dtype).max_finite).clamp(min=2.0**-30)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the values over their scale in 8 bit."""
        scaled = x / self.scale_of(x)
        return (
            scaled.to(self.dtype) if self.overflow is None else float8_cast(scaled, self.dtype, overflow=self.overflow)
        )


def drawn_quantization(draw: random.Random, dtype: torch.dtype) -> Quantization:
    """Return one of the ways in which kernels quantize; a small scale lets some values overflow."""
    words = [None, "saturate", "nan", *(["inf"] if format_of(dtype).has_inf else [])]
    static = 8.0 / format_of(dtype).max_finite
    return Quantization(dtype, draw.choice(words), draw.choice([None, static, static * 1.37, static / 16]))


def random_float8_program(
    seed: int, dtype: torch.dtype, *, elementwise: bool = False
) -> tuple[Callable[..., Tensor], list[str], list[Tensor]]:
    """Return a function of three matrices, the names of the operations in it, and its inputs.

    At least one input or the result is of the 8-bit format; the gradient by an 8-bit input is 8-bit too.
    """
    draw = random.Random(seed + 1)
    inner, names = random_program(seed, elementwise=elementwise, length=4)
    scales = [draw.choice([0.25, 0.0371, 1.0]) for _ in range(3)]
    narrow = [draw.random() < 0.6 for _ in range(3)]
    on_the_way = (
        dataclasses.replace(drawn_quantization(draw, dtype), overflow="saturate") if draw.random() < 0.25 else None
    )
    ending = drawn_quantization(draw, dtype) if draw.random() < 0.7 or not any(narrow) else None
    wider = [draw.choice(WIDER) for _ in range(4)]

    def program(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        values = [x.float() * s if x.itemsize == 1 else x.float() for x, s in zip((a, b, c), scales, strict=True)]
        if on_the_way is not None:
            values[0] = on_the_way(values[0]).float() * on_the_way.scale_of(values[0])
        result = inner(*values)
        return result.to(wider[3]) if ending is None else ending(result)

    plain = random_inputs(seed, torch.float32)
    inputs = [
        (x / s).to(dtype) if is_narrow else x.to(wide)
        for x, s, is_narrow, wide in zip(plain, scales, narrow, wider[:3], strict=True)
    ]
    return program, [*(["fake_quantize"] if on_the_way else []), *names, *(["quantize"] if ending else [])], inputs
