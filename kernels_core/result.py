"""A result: what a correct kernel may return for one output or gradient."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from kernels_core.coverage import Element, Figures, Source, decide, require_same_form
from kernels_core.enclosure import Enclosure
from kernels_core.exact.rounding import round_ball, round_rational
from kernels_core.exact.tier import Budget, resolve
from kernels_core.formats import format_of, next_down, next_up, round_to_nearest
from kernels_core.program import Meta
from kernels_core.tracing.complex_parts import parts_of

Tensor = torch.Tensor
EXACT_LIMIT = 4096  # more exact values than this are not worth FLINT's time for display


@dataclasses.dataclass(frozen=True)
class Result:
    """What a correct kernel may return for one output or gradient.

    Attributes:
        name: "output" or "grad_A".
        meta: shape and dtype.
        enclosure: float64 midpoint (with a low part in double-double) and bound.
        rad: bound on |mid + low - exact|, a tensor or a fraction of the bound.
        source: for the exact tier.
        kinks: the enclosure at kinks, where any element of the subdifferential interval is accepted; None where
            the inputs meet no kink or the convention is insisted on.
        at_nan: the enclosure with orders of NaN left open, None where there are none. Where it differs, NaN is accepted
            as well as what it contains.
        budget: of the exact tier.
    """

    name: str
    meta: Meta
    enclosure: Enclosure
    rad: Tensor | float
    source: Source | None
    kinks: Enclosure | None = None
    at_nan: Enclosure | None = None
    budget: Budget = dataclasses.field(default_factory=Budget)

    def __repr__(self) -> str:
        """Return "Result(grad_A, float32[16, 32])"."""
        return f"Result({self.name}, {str(self.meta.dtype)[6:]}{list(self.meta.shape)})"

    def widened(self, other: Enclosure | None) -> Result:
        """Return the result with the larger bound of its own and `other`'s, by a program of the same exact value.

        What the other program cannot bound it does not grant.
        """
        if other is None or other.bound is None or self.source is None:
            return self
        own = self.enclosure.bound_or_zero().expand(self.enclosure.shape)
        granted = torch.where(other.bound.isfinite() & other.mid.isfinite(), other.bound.expand(own.shape), 0.0)
        enclosure = dataclasses.replace(self.enclosure, bound=torch.maximum(own, granted))
        rad = self.rad if isinstance(self.rad, Tensor) else self.rad_abs()
        return dataclasses.replace(self, enclosure=enclosure, rad=rad)

    def covers(self, actual: Tensor) -> Tensor:
        """Return a BoolTensor of the shape of `actual`: True where a correct kernel may, for certain, return the value.

        Args:
            actual: the kernel's result, in the reference's shape and dtype, on any device.

        Raises:
            UsageError: the shape or dtype is another.
        """
        return self.verdict(actual) == Element.COVERED

    def verdict(self, actual: Tensor) -> Tensor:
        """Return an int8 tensor of `Element` codes: covered, violated, undecided, unconstrained."""
        return self.verdict_and_kinks(actual)[0]

    def verdict_and_kinks(self, actual: Tensor, figures: Figures | None = None) -> tuple[Tensor, Tensor]:
        """Return the codes, and True where the element was accepted only because it lies at a kink.

        Args:
            actual: as `covers`.
            figures: takes in the errors, where given.
        """
        actual = require_same_form(actual, self.meta.shape, self.meta.dtype, self.name).detach()
        actual = actual.to(self.enclosure.mid.device)
        verdict = decide(actual, self.enclosure, self.rad, self.source, self.budget, figures)
        accepted = torch.from_numpy(np.zeros(verdict.shape, dtype=bool))
        if self.kinks is None and self.at_nan is None:
            return verdict, accepted
        if self.kinks is not None:
            accepted = self._decided(actual, self.kinks) == Element.COVERED
        if self.at_nan is not None:
            there, open_ = self._decided(actual, self.at_nan), self._changed(self.at_nan)
            accepted = accepted | (open_ & (actual.isnan() | (there == Element.COVERED)))
            unknown = open_ & (there == Element.UNCONSTRAINED) & (verdict == Element.VIOLATED)
            verdict = torch.where(unknown, int(Element.UNCONSTRAINED), verdict)
        accepted = accepted & (verdict != Element.COVERED)
        return torch.where(accepted, int(Element.COVERED), verdict).to(torch.int8), accepted

    def _decided(self, actual: Tensor, other: Enclosure) -> Tensor:
        """Return the codes by the enclosure of another run."""
        return decide(actual, other, self.rad_abs() if other.rad is None else other.rad, None, self.budget)

    def _changed(self, other: Enclosure) -> Tensor:
        """Return where the enclosure of another run is another one."""
        own = self.enclosure
        same = (own.mid == other.mid) & (own.bound_or_zero() == other.bound_or_zero())
        return (~same).expand(own.shape)

    def rad_abs(self) -> Tensor:
        """Return the bound on |mid - exact| of each element as a tensor (the width of a kink is no error of ours)."""
        own = self.rad if isinstance(self.rad, Tensor) else self.rad * self.enclosure.bound_or_zero()
        own = own if self.enclosure.low is None else own + self.enclosure.low.abs()
        return own.expand(self.enclosure.shape)

    @functools.cached_property
    def exact(self) -> Tensor:
        """The exact value as float64: correctly rounded where the exact tier reached it, else within `rad` of it."""
        return self.exact_at(torch.arange(self.meta.numel)).reshape(self.meta.shape)

    def exact_at(self, index: Tensor) -> Tensor:
        """Return the exact values at flat indices, as `exact`; at most 4096 of them are evaluated in FLINT."""
        mid = self.enclosure.mid.to(torch.float64).reshape(-1)[index.to(self.enclosure.mid.device)].cpu().clone()
        if self.source is None or not self.enclosure.floating or len(index) > EXACT_LIMIT:
            return mid
        places = {int(flat): place for place, flat in enumerate(index)}

        def settle(values: Any, found: np.ndarray) -> np.ndarray:
            return np.array(
                [_store_rounded(mid, places[int(i)], v) for v, i in zip(values, found, strict=True)], dtype=bool
            )

        resolve(
            self.source.program,
            self.source.name,
            np.array(sorted(places)),
            self.source.inputs,
            self.source.integers,
            settle,
            self.budget,
        )
        return mid

    @property
    def lower(self) -> Tensor:
        """The smallest admissible value, in the result's dtype."""
        return self._end(-1.0)

    @property
    def upper(self) -> Tensor:
        """The largest admissible value, in the result's dtype."""
        return self._end(1.0)

    def _end(self, side: float) -> Tensor:
        if not self.enclosure.floating:
            return self.enclosure.mid
        target = self.enclosure.mid + side * self.enclosure.bound_or_zero()
        target = torch.where(self.enclosure.mid.isfinite(), target, self.enclosure.mid)
        fmt = format_of(self.meta.dtype)
        end = round_to_nearest(target, fmt)
        beyond = (end - target) * side > 0
        inward = next_down(end, fmt) if side > 0 else next_up(end, fmt)
        return torch.where(beyond & end.isfinite(), inward, end).to(self.meta.dtype)


@dataclasses.dataclass(frozen=True)
class ComplexResult:
    """What a correct kernel may return for one complex output or gradient: real and imaginary parts, one by one.

    Attributes:
        name: "output" or "grad_z".
        real, imag: of the two parts.
    """

    name: str
    real: Result
    imag: Result

    def __repr__(self) -> str:
        """Return "ComplexResult(grad_z, complex64[16, 32])"."""
        return f"ComplexResult({self.name}, {str(self.meta.dtype)[6:]}{list(self.meta.shape)})"

    @property
    def meta(self) -> Meta:
        """Shape and complex dtype."""
        return Meta(self.real.meta.shape, self.real.meta.dtype.to_complex())

    def covers(self, actual: Tensor) -> Tensor:
        """Return a BoolTensor: True where a correct kernel may, for certain, return both parts of the value.

        Raises:
            UsageError: the shape or dtype is another.
        """
        return self.verdict(actual) == Element.COVERED

    def verdict(self, actual: Tensor) -> Tensor:
        """Return an int8 tensor of `Element` codes: violated where a part is, else undecided, else unconstrained."""
        actual = require_same_form(actual, self.meta.shape, self.meta.dtype, self.name).detach()
        codes = [part.verdict(value) for part, value in zip((self.real, self.imag), parts_of(actual), strict=True)]
        found = torch.full_like(codes[0], int(Element.COVERED))
        for element in (Element.UNCONSTRAINED, Element.UNDECIDED, Element.VIOLATED):
            found[(codes[0] == element) | (codes[1] == element)] = int(element)
        return found

    @property
    def exact(self) -> Tensor:
        """The exact value as complex128, each part as `Result.exact`."""
        return torch.complex(self.real.exact, self.imag.exact)

    @property
    def lower(self) -> Tensor:
        """The smallest admissible value of each part."""
        return torch.complex(self.real.lower, self.imag.lower)

    @property
    def upper(self) -> Tensor:
        """The largest admissible value of each part."""
        return torch.complex(self.real.upper, self.imag.upper)


def joined(results: Mapping[str, Result], complex_names: Collection[str]) -> dict[str, Result | ComplexResult]:
    """Return results with the two parts of each complex tensor as one."""
    found: dict[str, Result | ComplexResult] = {}
    for name, result in results.items():
        whole = name.removesuffix(".real").removesuffix(".imag")
        if whole == name or whole not in complex_names:
            found[name] = result
        elif whole not in found:
            found[whole] = ComplexResult(whole, *(results[part] for part in (f"{whole}.real", f"{whole}.imag")))
    return found


def _store_rounded(mid: Tensor, index: int, value: Any) -> bool:
    if isinstance(value, (int, bool)):
        mid[index] = float(value)
        return True
    fmt = format_of(torch.float64)
    rounded = round_rational(value, fmt) if hasattr(value, "q") else round_ball(value, fmt)
    if rounded is not None:
        mid[index] = rounded
    return rounded is not None
