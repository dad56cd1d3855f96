"""The fingerprint of a narrower format: are the kernel's errors those of sums and products with rounded operands?

On positive terms a sequential float32 sum legitimately errs as much as TF32 operands do, so a size alone tells nothing.
But rounded operands make errors that can be foreseen, element by element. With e the kernel's errors and d those of
the reference run with its sums' and products' operands rounded to a format (both less their means over the elements),

    the kernel works in that format where   rms(e - d) < rms(e) / 4.

Errors that have nothing to do with d give rms(e - d)^2 = rms(e)^2 + rms(d)^2: to come below rms(e)^2 / 16 by chance,
the cosine of e and d over n elements must exceed 0.968; over 64 independent ones that has a probability below 1e-38.
Elements that err alike, as those of constant inputs do, are one coincidence and not many: the means are subtracted, and
only where at least 64 errors differ, by more than 2^-10 of their rms, is anything concluded.

Formats whose operands the profile declares are tried first, in the operations for which it does: float16 rounds as TF32
does to nearest, within its range, and a kernel whose errors the declared operands explain shows no other format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import torch

from kernels_core.audit.sample import Sample
from kernels_core.audit.terms import ACCUMULATING, CONVOLUTIONS, PRODUCTS
from kernels_core.profiles import Profile

Tensor = torch.Tensor
Narrowed = Callable[[str, Tensor], Tensor]
INDEPENDENT = 64
EXPLAINED = 4.0  # factor by which the foreseen errors must reduce the kernel's


def _tf32(value: Tensor, *, nearest: bool) -> Tensor:
    """Return float32 values with 10 of their 23 fraction bits, rounded to nearest (ties away) or truncated."""
    bits = value.contiguous().view(torch.int32)
    kept = (bits + 0x1000).bitwise_and_(~0x1FFF) if nearest else bits & ~0x1FFF
    return kept.view(torch.float32)


# Finest first: a float16 or bfloat16 operand is at least as far off as its tf32.
FORMATS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tf32": lambda value: _tf32(value, nearest=True),
    "tf32 (truncated)": lambda value: _tf32(value, nearest=False),
    "float16": lambda value: value.to(torch.float16).to(torch.float32),
    "bfloat16": lambda value: value.to(torch.bfloat16).to(torch.float32),
}


_DECLARED = {"": 0, "tf32": 2, "float16": 3, "bfloat16": 4}  # formats that `matmul_input` makes legal, from the finest


def undeclared(matmul_input: str) -> list[str]:
    """Return the formats that a profile with this `matmul_input` does not let operands be rounded to."""
    return list(FORMATS)[_DECLARED[matmul_input] :]


def declared(profile: Profile) -> list[Narrowed]:
    """Return the ways to read operands of products and convolutions that a profile declares, as `narrowed` does."""
    everywhere, name = profile.matmul_input, profile.matmul_input or profile.convolution_input
    operations = PRODUCTS if everywhere else CONVOLUTIONS
    return [narrowed(known, operations) for known in FORMATS if name and known.startswith(name)]


def narrowed(name: str, operations: Collection[str] = ACCUMULATING) -> Narrowed:
    """Return a function of (operation, operand) that rounds float32 operands of these operations to a format."""

    def rounded(operation: str, operand: Tensor) -> Tensor:
        return FORMATS[name](operand) if operation in operations and operand.dtype is torch.float32 else operand

    return rounded


def explains(sample: Sample, foreseen: Tensor) -> bool:
    """Return True where the kernel's errors are those of the evaluation `foreseen`."""
    errors, theirs = sample.own, sample.errors(foreseen)
    return sample.different >= INDEPENDENT and _spread(errors - theirs) * EXPLAINED < _spread(errors)


def exceeds(sample: Sample, foreseen: Tensor) -> bool:
    """Return True where a format makes errors too large to be the kernel's: no later, coarser one need be tried."""
    return _spread(sample.errors(foreseen)) > 2 * _spread(sample.own)


def _spread(errors: Tensor) -> float:
    return math.sqrt(float((errors - errors.mean()).square().mean()))
