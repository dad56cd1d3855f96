"""What a declared backward rests on: the stored outputs that it is given, and agreement with the derivative."""

from __future__ import annotations

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.errors import TraceError, UsageError
from kernels_core.formats import format_of
from kernels_core.result import Result

Tensor = torch.Tensor


def as_given(result: Result, actual: Tensor) -> Enclosure:
    """Return the enclosure of a stored output: around the exact value, as wide as the stored one is off.

    Raises:
        UsageError: no correct forward returns it.
    """
    count = int((~result.covers(actual)).sum())
    if count:
        raise UsageError(
            f"{result.name}: {count} elements are not what a correct forward may return\ncheck the forward first"
        )
    error = (actual.detach().to(result.enclosure.mid) - result.enclosure.mid).abs()
    error = torch.where(actual.to(result.enclosure.mid) == result.enclosure.mid, 0.0, error) * (1 + 2.0**-50)
    return Enclosure(result.enclosure.mid, error + result.rad_abs())


def as_rounded(given: Tensor) -> Tensor | Enclosure:
    """Return the enclosure of a floating input as wide as a rounding, relative to the largest number in the tensor.

    A kernel is backward stable where its result is the exact one of inputs that are off by a unit roundoff of the
    tensor's norm: this is what N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5, asks
    of an algorithm, and less than the reference's own steps may admit. Infinities stay what they are.
    """
    if not given.dtype.is_floating_point:
        return given
    mid, fmt = given.detach().to(torch.float64), format_of(given.dtype)
    finite = mid.abs().masked_fill(~mid.isfinite(), 0.0)
    width = max(float(finite.max()) * fmt.unit_roundoff, fmt.eta) if mid.numel() else 0.0
    return Enclosure(mid, torch.full_like(mid, width).masked_fill_(~mid.isfinite(), 0.0))


def require_agreement(traced: Result, declared: Enclosure, rad: Tensor | float, name: str) -> None:
    """Refuse a declared backward whose exact value is not the derivative: the midpoints differ by more than both rads.

    The midpoint of a stored output is float64's, off by at most its own rad, and the declared program moves that by no
    more than it moves the output's bound; hence a fraction of the declared bound on top.
    """
    gap = (traced.enclosure.mid - declared.mid).abs()
    own = traced.rad_abs()
    theirs = rad if isinstance(rad, Tensor) else rad * declared.bound_or_zero()
    worst = gap > (own + theirs + 2.0**-26 * declared.bound_or_zero() + 2.0**-50 * declared.mid.abs()) * 2
    if bool(worst.any()):
        index = tuple(int(i) for i in torch.nonzero(worst)[0])
        raise TraceError(
            f"the declared backward is not the derivative of the reference: {name}{list(index)} is "
            f"{float(declared.mid[index])!r}, the derivative {float(traced.enclosure.mid[index])!r}\n"
            "mend it, or declare it as a surrogate where it is meant to differ"
        )
