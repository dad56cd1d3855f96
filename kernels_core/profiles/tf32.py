"""`tf32`: float32 matrix products on tensor cores, whose operands lose 13 of their 23 fraction bits.

The hardware reads the first 10 fraction bits of an operand (truncation: off by less than 2^-10 |a|, toward zero) unless
the kernel rounds it first (off by 2^-11 |a|). Either is granted, for each operand of every matrix product and
convolution; an exact operand that TF32 holds is not changed by either and is granted nothing:

    |a'b' - a b| <= (|a| + A)(|b| + B) - |a| |b| ,   A = 2^-10 |a| where TF32 does not hold a, else 0

(2^-10 A for an operand that is itself uncertain). The products accumulate as in tensorcore-ampere, which is wider than
Hopper for TF32 operands: both have N = 4, and F = 24 bits are fewer than 25.

Source: PyTorch, docs/source/notes/numerical_accuracy.rst ("only the first 10 bits of the input mantissa are read");
PTX ISA 9.1, wgmma on .tf32 (truncates the low 13 bits).
"""

from __future__ import annotations

from kernels_core.profiles.accuracies import CUDA_ULP
from kernels_core.profiles.profile import Profile
from kernels_core.profiles.tensorcore import TF32_BLOCKS

TF32 = Profile(
    "tf32",
    "operands of float32 matrix products cut to 10 fraction bits, truncating blocks of 4 with 24 fraction bits",
    CUDA_ULP,
    "PyTorch numerical_accuracy notes; PTX ISA 9.1; arXiv 2512.07004",
    matmul_input="tf32",
    own=("matmul_input",),
    blocks=TF32_BLOCKS,
)
