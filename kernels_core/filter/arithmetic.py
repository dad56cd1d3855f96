"""The local rounding that one operation grants, in the dtype of its result.

A 16-bit or 8-bit operation computes in float32 and rounds once. With u, eta of the result's format, u_c of the compute
format and a function accuracy of n ulp (1 ulp <= 2 u_c |x| for normal x):

    |computed - x| <= ((1 + 2 n u_c)(1 + u_c)(1 + u) - 1) (|x| + bound) + eta

where 1 + u_c is dropped for a format as wide as its compute format. An elementary function (n > 0) may also return
anything within the smallest normal number of a result below it: vectorised exponentials flush there.

Source: Higham, Accuracy and Stability of Numerical Algorithms, section 2.2 (standard model with underflow).

`Float64` is the same thing for our own evaluation: run on it, the filter bounds |mid - exact| instead (`rad`).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.growth import TERM_FAILS, growth
from kernels_core.formats import FORMATS, format_of
from kernels_core.profiles import PROFILES, Profile

if TYPE_CHECKING:
    from kernels_core.program import Step

# Every bound is a sum of a few non-negative products evaluated in float64: at most 60 roundings of 2^-53 on any path
# through one rule, so that this factor makes the computed value an upper bound. Long sums inflate on their own.
INFLATE = 1 + 2.0**-47
# What a discrete decision (a comparison, a rounding to an integer) must leave open around a bound: mid may be off
# by 2^-26 of the bound (filter/run.py).
DISCRETE = 1 + 2.0**-24
NEARLY_EXACT = 1 + 2.0**-12  # more of each rounding where midpoints are RN(exact), see doubles/evaluation.py
FREE_SIGNS = 8  # runs with other signs at most, see free_signs.py
_SCRATCH = 1 << 19  # elements; what is larger is no tile
_BY_NAME = {fmt.name: fmt for fmt in FORMATS}
FLOAT64_FUNCTION_ULP = 4.0  # assumed of float64 elementary functions here; `exactref doctor` measures it


def compute_format(dtype: torch.dtype) -> torch.dtype:
    """Return the format in which an operation with results of `dtype` computes."""
    return torch.float32 if dtype.itemsize < 4 else dtype


@dataclasses.dataclass
class Arithmetic:
    """The settings of one run of the filter.

    Attributes:
        profile: what kernels may do.
        float64: True for the run that bounds our own evaluation (`rad`): every format is float64.
        doubles: True where every value is evaluated in double-double as well, which says |mid + low - exact|.
        around_mid: True where bounds are to hold around mid: our own float64 roundings count beside the kernel's.
        kinks: True where a tie of two certain floating values in a comparison counts as unsure.
        at_nan: True where an order of NaN counts as unsure.
        rad_lost: set by a rule whose bound is not star-shaped at some element, see filter/run.py.
        ties: number of exact ties of floating values that comparisons and kinked functions have met.
        orders_of_nan: number of comparisons with NaN met.
        special: set by a step of filter/closed.py that met what only the steps that it stands for can bound.
        failure: largest probability that a grant of this run does not hold; 0 unless sums are bounded by probability.
        smallest_factor: of the products that leave overflow what it is (filter/overflow.py).
        vectors: number of vectors met whose sign is free (eigenvectors and singular vectors).
        turned: which of them stand the other way round: those whose code (`Local.signs`) has this bit; 0 for none.
        copies: what rules keep of exact operands that come back: an input of a product is read by its gradients too.
        kept: what an evaluation keeps of its operand for the next step that reads it; each thread has its own.
        scratch: memory of the size of a tile for values that live for one operation; each thread has its own.
    """

    profile: Profile = dataclasses.field(default_factory=lambda: PROFILES["ieee"])
    float64: bool = False
    doubles: bool = False
    around_mid: bool = False
    kinks: bool = False
    at_nan: bool = False
    rad_lost: bool = False
    ties: int = 0
    orders_of_nan: int = 0
    special: bool = False
    failure: float = 0.0
    smallest_factor: float = 1.0
    vectors: int = 0
    turned: int = 0
    copies: dict[Any, Any] = dataclasses.field(default_factory=dict)
    kept: dict[str, Any] = dataclasses.field(default_factory=dict)
    scratch: dict[tuple[torch.Size, int], torch.Tensor] = dataclasses.field(default_factory=dict)


class Local:
    """The rounding of one step: what a rule needs to know beside its operands.

    Attributes:
        step: the step.
        nominal: dtype of the (first) result in the reference.
        dtype: the format that rounds: `nominal`, or float64 in the rad run. Absent for integer results.
        u, eta: of `dtype`.
        u_acc, eta_acc: of the compute format.
        u_sum, eta_sum: of the accumulator of sums and matrix products, which a profile may make narrower; eta_sum is
            what a product or a loaded term may lose below the normal range.
        own: our own unit roundoff, where it is part of the others; else 0.
    """

    def __init__(self, arithmetic: Arithmetic, step: Step, box: tuple[int, ...] = ()) -> None:
        """Take the formats of a step; `box` holds the sizes of the tile's leading dimensions."""
        self.arithmetic, self.step, self.box = arithmetic, step, box
        dtype = next((meta.dtype for meta in step.metas if meta is not None), torch.float32)
        self.nominal = dtype
        if not dtype.is_floating_point:
            return
        self.dtype = torch.float64 if arithmetic.float64 else dtype
        own = format_of(self.dtype)
        self.u, self.eta = own.unit_roundoff, own.eta
        self.compute = compute_format(self.dtype)
        wide = format_of(self.compute)
        self.u_acc, self.eta_acc = wide.unit_roundoff, wide.eta
        self.smallest_normal = wide.smallest_normal
        self.u_sum, self.eta_sum, self.own = self.u_acc, self.eta_acc, 0.0
        if self.profile is not None:
            self._as_declared(self.profile)
        if arithmetic.around_mid:
            self._around_mid()
        if arithmetic.doubles:
            self.u, self.u_acc, self.u_sum = (unit * NEARLY_EXACT for unit in (self.u, self.u_acc, self.u_sum))

    def _around_mid(self) -> None:
        """Let every rounding be one of the kernel's and one of ours (filter/run.py)."""
        self.own = format_of(torch.float64).unit_roundoff
        eta, normal = format_of(torch.float64).eta, format_of(torch.float64).smallest_normal
        self.u, self.u_acc, self.u_sum = self.u + self.own, self.u_acc + self.own, self.u_sum + self.own
        self.eta, self.eta_acc, self.eta_sum = self.eta + eta, self.eta_acc + eta, self.eta_sum + eta
        self.smallest_normal += normal

    @property
    def profile(self) -> Profile | None:
        """The profile, None in the run that bounds our own evaluation, to which no profile applies."""
        return None if self.arithmetic.float64 else self.arithmetic.profile

    def _as_declared(self, profile: Profile) -> None:
        """Take the accumulator and flushing of the profile."""
        if profile.accumulate:
            sums = _BY_NAME[profile.accumulate]
            self.u_sum, self.eta_sum = max(self.u_acc, sums.unit_roundoff), max(self.eta_acc, sums.eta)
        if profile.flush_subnormals:  # of a product or term, and of the addition that follows it
            normal = _BY_NAME[profile.accumulate].smallest_normal if profile.accumulate else 0.0
            self.eta_sum = 2 * max(self.smallest_normal, normal)
            self.eta, self.eta_acc = format_of(self.dtype).smallest_normal, self.smallest_normal

    @property
    def flushes(self) -> bool:
        """True where subnormal numbers may be taken for zero."""
        return self.profile is not None and self.profile.flush_subnormals

    @property
    def argument_error(self) -> float:
        """How far the argument of an exponential may be off, relatively (profiles/triton.py)."""
        return self.profile.exp_argument * self.u_acc if self.profile is not None else 0.0

    @property
    def sequential(self) -> bool:
        """True where the profile says that terms are added one after the other (rules/sequential.py)."""
        return self.profile is not None and self.profile.order == "sequential"

    @property
    def loaded(self) -> int:
        """1 where a term is rounded once more as it enters a narrower accumulator, else 0."""
        return int(self.u_sum > self.u_acc)

    @property
    def sum_rounding(self) -> float:
        """One rounding of the accumulator, in units of u_acc."""
        return self.u_sum / self.u_acc

    def sum_error(self, n: int, results: int = 0) -> float:
        """Return the relative error granted to each term of a sum of n terms; `results` counts such sums."""
        return self._growth(n, self.loaded, results)

    def dot_error(self, n: int, results: int = 0) -> float:
        """Return the same for a sum of n products."""
        return self._growth(n, 1, results)

    @property
    def split_roundings(self) -> float:
        """Roundings to the result's format on a product's way through a split inner dimension, in units of u_acc."""
        parts = self.profile.split_k if self.profile is not None else 1
        return parts * self.u / self.u_acc if parts > 1 else 0.0

    def sum_underflow(self, n: int) -> float:
        """Return what a sum of n terms may lose below the normal range: nothing where sums of a format are exact."""
        return n * self.eta_sum if self.flushes or self.u_sum > self.u_acc else 0.0

    def _growth(self, n: int, more: int, results: int) -> float:
        paths = max(n - 1, 0) + more
        if self.profile is None:
            return paths * self.u_sum
        found = growth(self.profile, n, self.u_sum - self.own, more) + paths * self.own  # we take any order
        if self.profile.probabilistic:
            self.arithmetic.failure += TERM_FAILS * n * max(1, results)
        # Our own evaluation takes any order: a grant that falls behind n u is no measure of it (filter/run.py).
        if found < paths * self.u_sum / 8:
            self.lose_rad()
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result within this tile: what shape arguments of the operation mean here."""
        return self.box + self.step.shape[len(self.box) :]

    @property
    def kinks(self) -> bool:
        """True where ties count as unsure."""
        return self.arithmetic.kinks

    @property
    def leaves_open(self) -> bool:
        """True in the runs that leave some orders unsure, whose midpoints stand for no exact value."""
        return self.arithmetic.kinks or self.arithmetic.at_nan

    def lose_rad(self) -> None:
        """Say that the bound of this step may be less than 2^26 times our own error: the rad run is needed."""
        self.arithmetic.rad_lost = True

    def signs(self, count: int) -> torch.Tensor:
        """Return 1 or -1 for each of `count` vectors whose sign is the algorithm's choice, see free_signs.py."""
        numbers = torch.arange(self.arithmetic.vectors, self.arithmetic.vectors + count)
        self.arithmetic.vectors += count
        codes = torch.where(numbers < FREE_SIGNS, 1 << numbers.clamp(max=FREE_SIGNS), numbers * 0x9E3779B1 >> 11)
        return torch.where((codes & self.arithmetic.turned) != 0, -1.0, 1.0).to(torch.float64)

    def ulp(self, function: str) -> float:
        """Return the granted error of an elementary function in ulp of the compute format.

        Around mid with our own error beside it: (n + 4 own / u) u >= n (u - own) + 4 own.
        """
        if self.arithmetic.float64:
            return FLOAT64_FUNCTION_ULP
        ours = 0.0 if function == "division" else FLOAT64_FUNCTION_ULP * self.own / self.u_acc
        return self.arithmetic.profile.ulp(function) + ours

    def factor(self, ulp: float = 0.0) -> float:
        """Return the relative error that one operation of this accuracy grants (see the module)."""
        return _factor(self.u, self.u_acc, self.dtype is not self.compute, ulp)

    def rounded(
        self,
        mid: torch.Tensor,
        bound: torch.Tensor | None,
        ulp: float = 0.0,
        *,
        subnormal: bool = True,
        own: bool = False,
    ) -> Enclosure:
        """Return the enclosure after the rounding of this operation.

        Args:
            mid: float64 value of the operation.
            bound: propagated bound, or None where the operands are exact.
            ulp: accuracy of the operation before its rounding.
            subnormal: False where the result is exact in the subnormal range: sums of values of the result's format.
            own: True where nothing else reads `bound`, so that the result may take its memory.
        """
        relative = self.factor(ulp)
        grown = (1 + relative) * INFLATE
        if own and bound is not None and mid.shape == bound.shape and mid.numel() != 1:
            result = bound.mul_(grown).add_(self.magnitude(mid), alpha=relative * INFLATE)
            return Enclosure(mid, self._with_underflow(result, ulp, subnormal))
        result = mid.abs() if mid.numel() != 1 or bound is None else mid.abs().expand(bound.shape)
        if bound is None:
            result = result.mul_(relative * INFLATE)
        else:
            if result.shape == bound.shape and mid.numel() != 1:
                result = result.mul_(relative * INFLATE).add_(bound, alpha=grown)
            else:
                result = torch.add(bound, result, alpha=relative / (1 + relative)).mul_(grown)
        return Enclosure(mid, self._with_underflow(result, ulp, subnormal))

    def _with_underflow(self, bound: torch.Tensor, ulp: float, subnormal: bool) -> torch.Tensor:
        if ulp:
            return bound.add_(self.eta + self.smallest_normal)
        return bound.add_(self.eta) if subnormal or self.flushes else bound

    def magnitude(self, mid: torch.Tensor, place: int = 0) -> torch.Tensor:
        """Return |mid|, valid until the next call for this place."""
        return torch.abs(mid, out=self.room(mid, place))

    def room(self, like: torch.Tensor, place: int = 0) -> torch.Tensor:
        """Return memory of this shape for a value of one rule: it stays in the cache from step to step of a tile."""
        if like.numel() > _SCRATCH:
            return torch.empty(like.shape, dtype=like.dtype, device=like.device)
        key = (like.shape, place)
        if key not in self.arithmetic.scratch:
            self.arithmetic.scratch[key] = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return self.arithmetic.scratch[key]

    def stored(self, value: Enclosure) -> Enclosure:
        """Return the enclosure after storing a value of the compute format in the result's format, if narrower."""
        if self.dtype is self.compute:
            return value
        bound = value.bound_or_zero().mul((1 + self.u) * INFLATE).add(value.mid.abs(), alpha=self.u * INFLATE)
        bound = torch.where(bound == 0, 0.0, bound.add(self.eta)) if bool((bound == 0).any()) else bound.add_(self.eta)
        if not all_finite(bound):  # an infinity or NaN that is certain stays so
            bound = torch.where(value.mid.isfinite(), bound, value.bound_or_zero())
        return Enclosure(value.mid, bound)


@functools.lru_cache(maxsize=512)
def _factor(u: float, u_compute: float, narrow: bool, ulp: float) -> float:
    """Return (1 + a)(1 + b)(1 + u) - 1, expanded because the difference from 1 would be lost in float64."""
    a, b = 2 * ulp * u_compute, u_compute if narrow else 0.0
    return (a + b + u + a * b + a * u + b * u + a * b * u) * (1 + 2.0**-40)
