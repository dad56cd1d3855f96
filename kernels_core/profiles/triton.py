"""`triton`: what Triton compiles plain operators to on NVIDIA GPUs, beside what `cuda` grants.

Division. `/` on float32 is `div.full.f32`, 2 ulp over the full range; `tl.div_rn` is exact and granted anyway.

Exponential. `tl.exp(x)` is `ex2.approx.f32(fl(x c))` with c = fl(log2 e). ex2.approx is within 2 ulp of the correctly
rounded value. Its argument is off: c = log2(e) (1 + d_c) with |d_c| = 0.224 u, and the product rounds by at most u, so

    fl(x c) = x log2(e) (1 + d),   |d| <= 1.224 u (1 + u),   2^fl(x c) = exp(x (1 + d))

which is a relative error of |x| 1.224 u: at x = -80 that is 98 u, 49 ulp or more. It is granted as a movement of the
argument wherever an exponential is evaluated: exp, sigmoid, silu, softplus, softmax and its relatives, gelu (tanh).
exp2 has no such argument. A softmax written as exp2(x c - m c) moves x - m by the same relative amount, and m c by one
rounding that all terms of the row share.

Source: triton-lang/triton, third_party/nvidia/lib/TritonNVIDIAGPUToLLVM/ElementwiseOpToLLVM.cpp (FDivOpConversion,
ExpOpConversionApprox); PTX ISA 9.1, div.full and ex2.approx. The figures of accuracies.TRITON_ULP stand beside theirs.
"""

from __future__ import annotations

from kernels_core.profiles.accuracies import TRITON_ULP
from kernels_core.profiles.profile import Profile
from kernels_core.profiles.tensorcore import WIDEST_BLOCKS

EXP_ARGUMENT = 1.225  # |d| / u: 1 for the product, 0.2239 for fl(log2 e), and their second-order terms

TRITON = Profile(
    "triton",
    "division of 2 ulp, exp by exp2 whose error grows with |x|, and what cuda grants",
    TRITON_ULP,
    "Triton's NVIDIA backend; PTX ISA 9.1",
    exp_argument=EXP_ARGUMENT,
    blocks=WIDEST_BLOCKS,
)
