"""`amx`: a CPU whose bfloat16 matrix products run on AMX tiles or AVX-512 dot products.

`TDPBF16PS` and `VDPBF16PS` round each FMA to nearest in float32, so their sums are those of `ieee` in some order, but
subnormal operands count as zero and subnormal results become zero, whatever the program asked for (MXCSR is not read).
Flushing is granted throughout (knob flush_subnormals): an operand or result below the smallest normal number of its
format may be zero instead, each product and each addition may lose that much.

Source: Intel SDM as mirrored at felixcloutier.com/x86/tdpbf16ps and namazso.github.io/x86/html/VDPBF16PS.html.
"""

from __future__ import annotations

from kernels_core.profiles.accuracies import CPU_ULP
from kernels_core.profiles.profile import Profile

AMX = Profile(
    "amx",
    "as ieee, and subnormal operands and results may be taken for zero (Intel AMX, AVX-512 bfloat16)",
    CPU_ULP,
    "Intel SDM, TDPBF16PS and VDPBF16PS",
    flush_subnormals=True,
    own=("flush_subnormals",),
)
