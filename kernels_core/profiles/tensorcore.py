"""`tensorcore-volta`, `tensorcore-ampere`, `tensorcore-hopper`: 16-bit and TF32 matrix products on tensor cores.

Products accumulate in blocks that are aligned and truncated (blocks.py); partial results of split chains are added in
float32. For float32 operands, which CUDA cores may multiply, the larger of this bound and that of float32 rounded to
nearest is granted; 16-bit operands are multiplied on tensor cores alone (a kernel that does otherwise is one for the
profile cuda, which grants both to all).

    generation       products N            F    p     serves
    volta            4                     23   23    V100
    ampere           8, TF32 4             24   23    A100, A30, A2, Ada, L40S; Turing (16-bit)
    hopper           16, TF32 4            25   23    H100, H200, B200 (16-bit)

A TF32 instruction of Hopper has 8 products in one form and 4 in another (the recorded outputs are of the latter); the
shorter one is granted. A kernel that uses shorter 16-bit instructions than these says `order: blocked:8`. Which row
holds is told by the operands: 16-bit dtypes, and float32 tensors all of whose values a 16-bit format holds, are "half",
others "single". TF32 rounding of operands is not granted here: declare `matmul_input: tf32` or the profile tf32.

`promote`, float8 and B200's float8 are not covered: see fp8.py; the recorded B200 float8 outputs agree with no model.

Sources: see blocks.py; N, F and p of MMA-Sim nv_ptx/sim.py agree with the MATLAB models A100TC, V100TC and H100TC.
"""

from __future__ import annotations

import dataclasses

from kernels_core.profiles.accuracies import CUDA_ULP
from kernels_core.profiles.blocks import BlockAccumulator
from kernels_core.profiles.profile import Profile

_SOURCE = "arXiv 2512.07004 and 2511.10909; CUDA C++ Programming Guide"

WIDEST_BLOCKS = {kind: BlockAccumulator(4, 23, 23) for kind in ("half", "single", "float8")}  # beside CUDA cores
VOLTA_BLOCKS = {**WIDEST_BLOCKS, "half": BlockAccumulator(4, 23, 23, alone=True)}
AMPERE_BLOCKS = {
    "half": BlockAccumulator(8, 24, 23, alone=True),
    "single": BlockAccumulator(4, 24, 23),
    "float8": BlockAccumulator(8, 24, 23),
}
HOPPER_BLOCKS = {
    "half": BlockAccumulator(16, 25, 23, alone=True),
    "single": BlockAccumulator(4, 25, 23),
    "float8": BlockAccumulator(16, 25, 23),
}

TF32_BLOCKS = {kind: dataclasses.replace(found, alone=False) for kind, found in AMPERE_BLOCKS.items()}

VOLTA = Profile(
    "tensorcore-volta",
    "matrix products in truncating blocks of 4 with 23 fraction bits (V100)",
    CUDA_ULP,
    _SOURCE,
    blocks=VOLTA_BLOCKS,
)
AMPERE = Profile(
    "tensorcore-ampere",
    "matrix products in truncating blocks of 8 (TF32: 4) with 24 fraction bits (A100, Ada)",
    CUDA_ULP,
    _SOURCE,
    blocks=AMPERE_BLOCKS,
)
HOPPER = Profile(
    "tensorcore-hopper",
    "matrix products in truncating blocks of 16 (TF32: 4) with 25 fraction bits (H100, H200)",
    CUDA_ULP,
    _SOURCE,
    blocks=HOPPER_BLOCKS,
)
