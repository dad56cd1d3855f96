"""Were the results rounded to a narrower format? Then all of them lie on its grid, though exact results do not.

Only elements count whose exact value, rounded once to the result's own format, is not on the narrower grid. A value of
p bits that is no rounding to q < p bits lies on that grid by chance in one case out of 2^(p - q), at most 1/8 for
bfloat16 in float16. The results were rounded to that format where

    all values of such elements are on the grid, at least 64 of them differ, and the reference's own are not:

64 different values that fall on it by chance have a probability below 2^-192.

A sum that cancels is no such chance: its result is a multiple Q of the unit of its largest partial sum, which may be
coarse beside it. To be on the narrower grid for that reason Q must be at least the unit U(a) of the narrower format at
the result a, so a partial sum has been 2^(p - 1) U(a) or more, and the bound, 2^-p of that or more, is at least
U(a) / 2. Elements with smaller bounds count as they are. With those of larger ones it is the small results that tell:
Q is about the same part of each bound, so all results being on the grid, those whose |a| / bound is 8 times below the
largest are multiples of 4 U(a) or more (partial sums twice as large or small granted), while of those that were rounded
to the format one half are odd multiples of U(a). They count where at least 16 are.

Where the reference itself takes its
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
SMALL, ODD = 8.0, 16
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
    if not bool(is_in(values[open_], narrower).all()):
        return False
    unit, bound = _unit(values, narrower), sample.bound
    if not _told(values, open_, unit, bound):
        return False
    theirs = native[open_ & native.isfinite()]
    return bool(theirs.numel()) and not bool(is_in(theirs, narrower).all())


def _told(values: Tensor, open_: Tensor, unit: Tensor, bound: Tensor) -> bool:
    """Return True where it takes a rounding to the narrower format, and no cancellation, to be on its grid."""
    if len(torch.unique(values[open_ & (2 * bound < unit)])) >= DIFFERENT:
        return True
    if len(torch.unique(values[open_])) < DIFFERENT:
        return False
    relative = values.abs() / bound
    small = open_ & (relative * SMALL < relative[open_].amax())
    return int((values[small] / unit[small]).remainder(2).eq(1).sum()) >= ODD


def _unit(values: Tensor, fmt: Format) -> Tensor:
    """Return the distance of the values of a format at these."""
    size = values.abs().clamp_(min=fmt.smallest_normal)
    return torch.ldexp(torch.ones_like(size), torch.frexp(size).exponent - fmt.precision)
