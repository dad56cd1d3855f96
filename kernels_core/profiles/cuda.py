"""`cuda`: what any NVIDIA GPU may do under CUDA's documentation; the default on cuda devices.

Elementary functions err as the CUDA C++ Programming Guide documents. Matrix products may run on tensor cores of any
generation. NVIDIA leaves their accumulation unspecified (PTX ISA: "accumulation order, rounding and handling of
subnormal inputs are unspecified"), so the widest of the measured accumulators is granted, Volta's: with N = 4 products
and F = p = 23 it has the shortest blocks and the fewest bits, and the bound of rules/block_products.py falls with N, F
and p. Float32 products rounded to nearest are granted as well (CUDA cores). Float8 accumulators of 13 bits and TF32
operands are not: profiles fp8-fast and tf32.
"""

from __future__ import annotations

from kernels_core.profiles.accuracies import CUDA_ULP
from kernels_core.profiles.profile import Profile
from kernels_core.profiles.tensorcore import WIDEST_BLOCKS

CUDA = Profile(
    "cuda",
    "CUDA's documented function errors; matrix products on tensor cores of any generation (float8: see fp8-fast)",
    CUDA_ULP,
    "CUDA C++ Programming Guide; arXiv 2512.07004 and 2511.10909",
    blocks=WIDEST_BLOCKS,
)
