"""Were the results rounded to a narrower format? Then all of them lie on its grid, though exact results do not.

Only elements count whose exact value, rounded once to the result's own format, is not on the narrower grid. A value of
p bits that is no rounding to q < p bits lies on that grid by chance in one case out of 2^(p - q), at most 1/8 for
bfloat16 in float16. The results were rounded to that format where

    all values of such elements are on the grid, at least 64 of them differ, and the reference's own are not:

64 different values that fall on it by chance have a probability below 2^-192. Where the reference itself takes its
result through the narrower format, PyTorch's run of it shows that; an accumulator that the profile declares leaves its
results on its own grid.
"""

from __future__ import annotations

import math

import torch

from kernels_core.audit.parts import Part
from kernels_core.audit.sample import Sample, taken
from kernels_core.formats import BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT16, FLOAT32, Format, format_of, is_in
from kernels_core.formats import round_to_nearest as rounded
from kernels_core.rules.matmul_inputs import TF32

Tensor = torch.Tensor
DIFFERENT = 64
_FIRST = 256  # elements that are looked at before all of them
COARSEST_FIRST = (FLOAT8_E5M2, FLOAT8_E4M3FN, BFLOAT16, FLOAT16, TF32, FLOAT32)


def stored_in(sample: Sample, native: Tensor | Part, accumulate: str = "") -> str:
    """Return the name of the coarsest format that the kernel's results were rounded to, "" where there is none.

    Args:
        sample: elements of the kernel's result.
        native: the same result as PyTorch's run of the reference has it.
        accumulate: the format of the accumulator that the profile declares, "" for none.
    """
    declared = format_of(getattr(torch, accumulate)).precision if accumulate else math.inf
    own = format_of(sample.actual.dtype)
    values = taken(sample.actual, sample.index).double()
    for narrower in COARSEST_FIRST:
        undeclared = narrower.precision < min(own.precision, declared)
        if undeclared and bool(is_in(values[:_FIRST], narrower).all()):
            if _all_on_grid(sample, values, taken(native, sample.index).double(), own, narrower):
                return narrower.name
    return ""


def _all_on_grid(sample: Sample, values: Tensor, native: Tensor, own: Format, narrower: Format) -> bool:
    open_ = ~is_in(rounded(sample.mid, own), narrower) & values.isfinite()
    if not bool(is_in(values[open_], narrower).all()) or len(torch.unique(values[open_])) < DIFFERENT:
        return False
    theirs = native[open_ & native.isfinite()]
    return bool(theirs.numel()) and not bool(is_in(theirs, narrower).all())
