"""Accuracies of elementary functions: every figure with what it was taken from.

An accuracy of n ulp means |computed - f(x)| <= (n + 1/2) ulp of the compute format before the final rounding: vendors
count from the correctly rounded result, so their n leaves the half ulp of that rounding to be added. A figure is never
below the largest documented error; where it is above, it allows for implementations that the source did not look at.
docs/accuracy.md is this file as a table, and a test holds the two together. What our own float64 evaluation assumes is
one figure, `arithmetic.FLOAT64_FUNCTION_ULP`, and `exactref doctor` measures it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

SOURCES: Mapping[str, str] = {
    "glibc": "glibc, sysdeps/x86_64/fpu/libm-test-ulps (rows float and double, round to nearest)",
    "libmvec": "the same file, rows of the vector functions (_vlen2 to _vlen16)",
    "JAX CPU": "JAX documentation, docs/accuracy.md, reviewed 2026-09-18: CPU, float32, unary functions exhaustively",
    "JAX GPU": "the same page: H100 and B200, float32",
    "MKL": "ulpwise 0.3.4, README: torch.sqrt with MKL is not the correctly rounded value on 0.7 % of inputs",
    "FLINT": "PyTorch 2.13 on x86-64 against FLINT, as `exactref doctor` measures",
    "CUDA": "CUDA C++ Programming Guide, mathematical functions, single and double precision (tests, not proofs)",
    "CUDA intrinsics": "CUDA C++ Programming Guide, intrinsic functions",
    "PTX": "PTX ISA 9.1, the instruction's own section",
    "IEEE 754": "IEEE 754-2019, clause 5.4.1: correctly rounded",
    "derived": "composed of the others, see the comment beside it",
}


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """What is granted to one function.

    Attributes:
        ulp: n, see the module.
        documented: the largest error that the source has, in the source's own count.
        source: a key of `SOURCES`.
    """

    ulp: float
    documented: float
    source: str


CPU: Mapping[str, Accuracy] = {
    "sqrt": Accuracy(1, 1, "MKL"),
    "rsqrt": Accuracy(2, 2, "JAX CPU"),
    "reciprocal": Accuracy(1, 0.5, "JAX CPU"),
    "division": Accuracy(0, 0, "IEEE 754"),
    "exp": Accuracy(2, 1.5, "JAX CPU"),
    "exp2": Accuracy(2, 1, "libmvec"),
    "expm1": Accuracy(2, 1, "libmvec"),
    "log": Accuracy(3, 3, "libmvec"),
    "log2": Accuracy(3, 2.5, "JAX CPU"),
    "log10": Accuracy(3, 3, "JAX CPU"),
    "log1p": Accuracy(3, 3, "JAX CPU"),
    "sin": Accuracy(2, 2, "libmvec"),
    "cos": Accuracy(2, 2, "libmvec"),
    "tan": Accuracy(4, 2, "libmvec"),
    "asin": Accuracy(4, 2, "JAX CPU"),
    "acos": Accuracy(4, 2, "libmvec"),
    "atan": Accuracy(3, 1, "libmvec"),
    "atan2": Accuracy(4, 3, "libmvec"),
    "sinh": Accuracy(4, 2, "libmvec"),
    "cosh": Accuracy(4, 2, "libmvec"),
    "tanh": Accuracy(5, 5, "JAX CPU"),
    "asinh": Accuracy(4, 3.5, "JAX CPU"),
    "acosh": Accuracy(4, 2, "libmvec"),
    "atanh": Accuracy(4, 3, "JAX CPU"),
    "erf": Accuracy(7, 7, "JAX CPU"),
    "erfc": Accuracy(8, 5, "libmvec"),
    "sigmoid": Accuracy(5, 2.5, "JAX CPU"),
    "pow": Accuracy(4, 3, "libmvec"),
    "hypot": Accuracy(3, 1.5, "JAX CPU"),
    "default": Accuracy(8, 5, "derived"),  # the least accurate of the table, erfc
}

# A kernel on CUDA may call the same libraries' formulas as on a CPU (a reference run there does), so nothing is below.
CUDA: Mapping[str, Accuracy] = {
    **CPU,
    "sqrt": Accuracy(1, 1, "JAX GPU"),
    "rsqrt": Accuracy(2, 2, "CUDA"),
    "reciprocal": Accuracy(1, 1, "JAX GPU"),
    "exp": Accuracy(2, 2, "CUDA"),
    "exp2": Accuracy(2, 2, "CUDA"),
    "expm1": Accuracy(2, 1, "CUDA"),
    "log": Accuracy(3, 1, "CUDA"),
    "log1p": Accuracy(3, 1, "CUDA"),
    "log2": Accuracy(3, 2, "JAX GPU"),
    "log10": Accuracy(3, 2.5, "JAX GPU"),
    "sin": Accuracy(2, 1.5, "JAX GPU"),
    "cos": Accuracy(2, 2, "JAX GPU"),
    "tan": Accuracy(4, 3.5, "JAX GPU"),
    "asin": Accuracy(4, 1.5, "JAX GPU"),
    "acos": Accuracy(4, 1.5, "JAX GPU"),
    "atan": Accuracy(3, 1.5, "JAX GPU"),
    "atan2": Accuracy(4, 3, "JAX GPU"),
    "sinh": Accuracy(4, 3, "JAX GPU"),
    "cosh": Accuracy(4, 2.5, "JAX GPU"),
    "tanh": Accuracy(5, 2, "CUDA"),
    "asinh": Accuracy(4, 2, "JAX GPU"),
    "acosh": Accuracy(4, 2.5, "JAX GPU"),
    "atanh": Accuracy(4, 3.5, "JAX GPU"),
    "erf": Accuracy(4, 2, "CUDA"),
    "erfc": Accuracy(6, 5, "CUDA"),
    "sigmoid": Accuracy(5, 4, "JAX GPU"),
    "pow": Accuracy(8, 4, "CUDA"),
    "hypot": Accuracy(3, 2, "JAX GPU"),
}

# ex2.approx.f32 errs by 2 ulp, and the error of its argument, which grows with |x|, is granted apart (triton.py).
# sqrt.approx.f32: 2^-23 relative, 1 ulp as counted here (2 u |x|); rsqrt.approx.f32: 2^-22.9, 1.08 ulp. Sigmoid is
# 1 / (1 + exp(-x)): exp (2 + 1/2 ulp), the sum, and the division (2 + 1/2), each with condition at most 1.
TRITON: Mapping[str, Accuracy] = {
    **CUDA,
    "sqrt": Accuracy(1, 1, "PTX"),
    "rsqrt": Accuracy(2, 1.08, "PTX"),
    "division": Accuracy(2, 2, "PTX"),
    "reciprocal": Accuracy(2, 2, "PTX"),
    "exp": Accuracy(2, 2, "PTX"),
    "exp2": Accuracy(2, 2, "PTX"),
    "sigmoid": Accuracy(6, 5.5, "derived"),
}

# What -use_fast_math, __expf and their like do. No profile grants these: near a zero of the function the relative
# error has no limit. A kernel that is meant to use one says so with the knob function_ulp.
FAST_MATH: Mapping[str, tuple[str, str]] = {
    "exp": ("2 + floor(|1.173 x|) ulp", "CUDA intrinsics"),
    "log": ("2^-21.41 absolute on [0.5, 2], else 3 ulp", "CUDA intrinsics"),
    "log2": ("2^-22 absolute on [0.5, 2], else 2 ulp", "CUDA intrinsics"),
    "sin": ("2^-21.41 absolute on [-pi, pi]", "CUDA intrinsics"),
    "cos": ("2^-21.19 absolute on [-pi, pi]", "CUDA intrinsics"),
    "tanh": ("2^-11 relative", "PTX"),
    "division": ("2 ulp for 2^-126 <= |y| <= 2^126", "CUDA intrinsics"),
    "reciprocal": ("1 ulp", "PTX"),
    "rsqrt": ("2^-22.9 relative", "PTX"),
    "sqrt": ("2^-23 relative", "PTX"),
}


def ulps(table: Mapping[str, Accuracy]) -> dict[str, float]:
    """Return the granted ulps alone."""
    return {name: accuracy.ulp for name, accuracy in table.items()}


CPU_ULP, CUDA_ULP, TRITON_ULP = ulps(CPU), ulps(CUDA), ulps(TRITON)
TABLES: Mapping[str, Mapping[str, Accuracy]] = {"CPU (ieee)": CPU, "CUDA (cuda)": CUDA, "Triton (triton)": TRITON}


def page() -> Iterator[str]:
    """Yield the lines of the tables in docs/accuracy.md."""
    yield "| function | " + " | ".join(f"{title}: ulp | documented, source" for title in TABLES) + " | fast math |"
    yield "|---" * (2 + 2 * len(TABLES)) + "|"
    for name in CPU:
        cells = [f"{table[name].ulp:g} | {table[name].documented:g}, {table[name].source}" for table in TABLES.values()]
        fast = f"{FAST_MATH[name][0]} ({FAST_MATH[name][1]})".replace("|", "\\|") if name in FAST_MATH else ""
        yield f"| {name} | " + " | ".join(cells) + f" | {fast} |"
    yield ""
    yield from (f"- **{name}**: {text}." for name, text in SOURCES.items())
