"""`ieee`: IEEE 754 arithmetic as a CPU performs it.

Every operation rounds once to nearest in its compute format (float32 for narrower dtypes); subnormals are kept; sums
and products accumulate in that format, in any order, with or without FMA: (n - 1) u sum|x|, n u sum|a b| (Jeannerod and
Rump 2013, rules/sums.py and rules/product_bounds.py). Elementary functions err as those of glibc, libmvec, SLEEF and
PyTorch's own compositions do (accuracies.py).
"""

from __future__ import annotations

from kernels_core.profiles.accuracies import CPU_ULP
from kernels_core.profiles.profile import Profile

IEEE = Profile(
    "ieee",
    "round to nearest, float32 accumulation in any order, elementary functions of CPU libraries",
    CPU_ULP,
    "IEEE 754; glibc libm-test-ulps; JAX accuracy tables",
)
