"""Three sizes of a tensor's errors e = (value - exact) / bound over a sample of n elements.

    rms      root mean square of e
    peak     the largest |e|: one element in a million that works in a lower precision moves no rms
    common   the part of e along x = exact / bound, |sum e x| / (sqrt(n) |x|): a factor that is common to all elements,
             such as 1 / (n - 1) in the place of 1 / n, or a constant dropped beside a large one

A kernel is compared in each of them with the same of PyTorch's own run and of legal evaluations. Independent errors of
root mean square s have a common part of about s / sqrt(n) by chance; errors that are alike, as those of constant inputs
are, count once: with d different ones the chance is taken to be s / sqrt(d).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Measures:
    """The three sizes; zero where nothing is known."""

    rms: float = 0.0
    peak: float = 0.0
    common: float = 0.0

    @classmethod
    def of(cls, errors: Tensor, exact: Tensor) -> Measures:
        """Return the sizes of the errors that are known (not NaN), with `exact` in units of the bound."""
        known = ~errors.isnan()
        if not bool(known.all()):
            errors, exact = errors[known], exact[known]
        if not len(errors):
            return cls()
        length = float(exact.square().sum().sqrt())
        along = abs(float((errors * exact).sum())) / (math.sqrt(len(errors)) * length) if 0 < length < math.inf else 0.0
        return cls(math.sqrt(float(errors.square().mean())), float(errors.abs().amax()), along)

    @classmethod
    def mean_square(cls, several: Sequence[Measures]) -> Measures:
        """Return the root mean squares of each size."""
        return cls(*(math.sqrt(sum(getattr(m, f.name) ** 2 for m in several) / len(several))
                     for f in dataclasses.fields(cls)))  # fmt: skip

    def largest(self, other: Measures) -> Measures:
        """Return the larger of each size."""
        return Measures(max(self.rms, other.rms), max(self.peak, other.peak), max(self.common, other.common))

    def with_chance(self, different: int) -> Measures:
        """Return these sizes, where the common part is at least what independent errors show by chance."""
        return dataclasses.replace(self, common=max(self.common, self.rms / math.sqrt(max(1, different))))


def different(errors: Tensor) -> int:
    """Return how many errors differ from each other by more than 2^-10 of their root mean square."""
    size = math.sqrt(float(errors.square().mean()))
    if not size:
        return 0
    place = torch.round(errors / size * 2.0**10).to(torch.int64)  # at most 2^10 sqrt(n) from zero
    place -= int(place.amin())
    met = place.new_zeros(int(place.amax()) + 1, dtype=torch.bool)
    return int(torch.count_nonzero(met.index_fill_(0, place, True)))


def bits(own: float, known: float, *, settled: bool) -> float:
    """Return log2(own / known).

    Nothing to compare with is no evidence against the kernel once legal runs were made (`settled`).
    """
    if own == 0:
        return -math.inf
    if known == 0:
        return 0.0 if settled else math.inf
    return math.log2(own / known)
