"""Accuracies of elementary functions, in ulp of the compute format, each table with its source.

An accuracy of n ulp means |computed - f(x)| <= (n + 1/2) ulp of the compute format before the final rounding: vendors
count from the correctly rounded result, so their n leaves the half ulp of that rounding to be added.
"""

from __future__ import annotations

from collections.abc import Mapping

# Largest documented or measured error in float32 and float64, in ulp, over the implementations that a CPU kernel may
# call: glibc and libmvec (glibc libm-test-ulps), SLEEF u10 and u20 variants, and the compositions that PyTorch itself
# uses. Sources: glibc sysdeps/x86_64/fpu/libm-test-ulps; the accuracy table of the JAX documentation (CPU columns);
# `torch.sqrt` differs from the correctly rounded value by 1 ulp on some inputs where MKL serves it (ulpwise README).
# PyTorch 2.13 on x86-64 against FLINT, 4000 points each: at most 0.9 in float32 and float64, asinh and acosh 1.3,
# rsqrt (1.4) and sigmoid (2.2).
CPU_ULP: Mapping[str, float] = {
    "sqrt": 1, "rsqrt": 2, "reciprocal": 1, "exp": 2, "exp2": 2, "expm1": 2, "log": 3, "log2": 3, "log10": 3,
    "log1p": 3, "sin": 2, "cos": 2, "tan": 4, "asin": 4, "acos": 4, "atan": 3, "atan2": 4, "sinh": 4, "cosh": 4,
    "tanh": 5, "asinh": 4, "acosh": 4, "atanh": 4, "erf": 7, "erfc": 8, "sigmoid": 5, "pow": 4, "division": 0,
    "hypot": 3, "default": 8,
}  # fmt: skip

# CUDA C++ Programming Guide, mathematical functions: maximum errors in ulp ("extensive but not exhaustive tests").
CUDA_ULP: Mapping[str, float] = {
    **CPU_ULP, "exp": 2, "expm1": 2, "log": 3, "rsqrt": 2, "erf": 4, "erfc": 6, "pow": 8, "tan": 4, "atan2": 4,
}  # fmt: skip

# PTX ISA 9.1, ex2.approx.f32: 2 ulp from the correctly rounded result on the full range; div.full.f32: 2 ulp.
# sqrt.approx.f32: relative error 2^-23, which is 1 ulp as counted here (2 u |x|); rsqrt.approx.f32: 2^-22.9, 1.08 ulp.
# Sigmoid is 1 / (1 + exp(-x)): exp (2 + 1/2 ulp), the sum, and the division (2 + 1/2), each with condition at most 1.
TRITON_ULP: Mapping[str, float] = {**CUDA_ULP, "division": 2, "reciprocal": 2, "sigmoid": 6, "rsqrt": 2}
