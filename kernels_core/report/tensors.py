"""What was found about one output or gradient: a row of the coverage table and what stands behind it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from kernels_core.report.verdicts import Verdict


@dataclasses.dataclass(frozen=True)
class Element:
    """One failing element.

    Attributes:
        index: logical index.
        actual: what the kernel returned (a Python float, complex or int, exact).
        lower, upper: ends of the admissible set in the result's dtype.
        exact: the exact value rounded to float64 (17 digits identify it).
        ulps_outside: distance from the admissible set in ulps of the dtype (inf for NaN or an infinity).
        ratio: actual / exact, None where that is not a number.
    """

    index: tuple[int, ...]
    actual: float
    lower: float
    upper: float
    exact: float
    ulps_outside: float
    ratio: float | None


@dataclasses.dataclass(frozen=True)
class Blame:
    """The line of the kernel that makes one tensor wrong.

    Attributes:
        place: "file:line".
        text: the line itself, "" where it cannot be read.
        verdict: "the formula is wrong here", "precision is lost here", "the first NaN appears here".
        reason: what was tried, and what it changed.
        callers: "file:line" of the user's frames that led there, innermost first.
    """

    place: str
    text: str
    verdict: str
    reason: str
    callers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why one tensor is violated.

    Attributes:
        elements: the worst elements, worst first, at most ten.
        pattern: which indices fail, one line ("all elements", "rows 3 and 7", "the last 3 columns").
        diagnosis: lines such as "all 512 failing elements are 1.5 times the exact value"; may be empty.
        strides: strides of the returned tensor.
        blame: the lines of the kernel that make it wrong, where it is made of PyTorch operations; may be empty.
    """

    elements: tuple[Element, ...]
    pattern: str
    diagnosis: tuple[str, ...]
    strides: tuple[int, ...]
    blame: tuple[Blame, ...] = ()


@dataclasses.dataclass(frozen=True)
class Precision:
    """The precision audit of one tensor; every error is divided by the element's bound.

    Attributes:
        elements: that were looked at.
        rms, bias: root mean square and mean of (actual - exact) / bound.
        native_rms: the same for the reference as PyTorch runs it in the declared dtypes.
        legal_rms: the same for random legal evaluations with sequential sums, None where they were not needed.
        bits_lost: log2(rms / max(native_rms, legal_rms)); -inf where the kernel has no error.
        peak_bits: the same of the largest error.
        common_bits: the same of the part of the errors that is a factor common to all elements.
        unrounded_bits: the most of the first two for what the last rounding of a 16-bit result cannot explain.
        works_in: the narrower format whose rounding of operands makes just these errors, "" where there is none.
        stored_in: the narrower format that all results are values of, though the exact ones are not; "" as above.
    """

    elements: int
    rms: float
    bias: float
    native_rms: float
    legal_rms: float | None
    bits_lost: float
    peak_bits: float = -math.inf
    common_bits: float = -math.inf
    unrounded_bits: float = -math.inf
    works_in: str = ""
    stored_in: str = ""

    @property
    def suspect(self) -> bool:
        """True where the kernel loses more than correct kernels do, or its errors are those of a narrower format."""
        return max(*self.bits, self.unrounded_bits) > SUSPECT_BITS or bool(self.works_in) or bool(self.stored_in)

    @property
    def bits(self) -> tuple[float, float, float]:
        """Bits lost in the root mean square, in the largest error and in the common factor."""
        return self.bits_lost, self.peak_bits, self.common_bits


SUSPECT_BITS = 5.0


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """Which faults of one tensor would be flagged on these inputs, as shares of its elements.

    Attributes:
        rounding: of the result, to each narrower format.
        factors: relative errors of 2^-k, by k.
        factor_1_001: a factor of 1.001.
        zeroed: an element left at zero.
        swapped: an element changed for its neighbour.
        in_sum: operands of the longest sum rounded to each narrower format; foreseen, where the sum makes the bound.
    """

    rounding: Mapping[str, float]
    factors: Mapping[int, float]
    factor_1_001: float
    zeroed: float
    swapped: float
    in_sum: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class TensorReport:
    """One row of the coverage table.

    Attributes:
        name: "output", "output[1]", "grad_A".
        kind: "output" or "gradient".
        shape, dtype: of the tensor, dtype as "float32".
        elements: number of elements; covered + violated + undecided + unconstrained = elements.
        kinks: covered elements that were accepted because they lie at a kink (counted in covered too).
        max_error_ulp: largest |actual - exact| in ulps of the dtype at the exact value.
        bound_ulp: median over the elements of the bound in ulps of the dtype.
        used: largest |actual - exact| / bound over the decided elements, bound taken with the final rounding.
        precision: the precision audit, None where it was not run or there was nothing to measure.
        verdict: COVERED only where every element is covered.
        failure: None unless violated.
        note: one line for the user, such as 'the backward returned None, which means zero'.
        sensitivity: which faults would be flagged, None for tensors without floating elements.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    elements: int
    covered: int
    violated: int
    undecided: int
    unconstrained: int
    kinks: int
    max_error_ulp: float
    bound_ulp: float
    used: float
    precision: Precision | None
    verdict: Verdict
    failure: Failure | None = None
    note: str = ""
    sensitivity: Sensitivity | None = None
