"""`fp8-fast` and `fp8-promoted`: float8 matrix products whose accumulator keeps 13 fraction bits.

Hopper's float8 instruction adds 32 products, aligned with F = 13 and cut to p = 13 fraction bits (blocks.py). On long
sums this loses most digits: on 4096 uniform products the result is off by 7 % of sum |a b|.

    fp8-fast       every block goes on in that accumulator. Ada's instruction has 16 products: `order: blocked:16`.
    fp8-promoted   after 128 products the sum moves to a float32 accumulator and a new one starts: an error of
                   2^-13 (33 + 1) per block of 32, of the sum of |a b| over its 128 products only, and one float32
                   addition per 128 (rules/block_products.py).

128 is CUTLASS's default, mma_promotion_interval = 4 instructions of 32 products (include/cutlass/gemm/collective/
fp8_accumulation.hpp). Which operands are meant: every matrix product but those of 16-bit dtypes, which accumulate as in
tensorcore-hopper. A reference whose float8 inputs are upcast to float32 is meant too.

Sources: see blocks.py; MMA-Sim nv_ptx/sim.py, WGMMA: F = 13, "RZ-E8M13", 32 products; Ada: 16.
"""

from __future__ import annotations

from kernels_core.profiles.accuracies import CUDA_ULP
from kernels_core.profiles.blocks import BlockAccumulator
from kernels_core.profiles.profile import Profile
from kernels_core.profiles.tensorcore import HOPPER_BLOCKS

_SOURCE = "arXiv 2512.07004 and 2511.10909; CUTLASS fp8_accumulation.hpp"

FAST = Profile(
    "fp8-fast",
    "float8 matrix products in truncating blocks of 32 with 13 fraction bits (Hopper)",
    CUDA_ULP,
    _SOURCE,
    blocks={**HOPPER_BLOCKS, **dict.fromkeys(("float8", "single"), BlockAccumulator(32, 13, 13))},
)
PROMOTED = Profile(
    "fp8-promoted",
    "as fp8-fast, moved to a float32 accumulator after every 128 products",
    CUDA_ULP,
    _SOURCE,
    blocks={**HOPPER_BLOCKS, **dict.fromkeys(("float8", "single"), BlockAccumulator(32, 13, 13, promote=128))},
)
