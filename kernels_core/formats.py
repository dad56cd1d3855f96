"""Floating-point formats as data, and the only place where a float64 value is rounded to one.

Where FLINT has decided instead, `exact/rounding.py` rounds its exact values and balls.

A format F with precision p holds 0, the values m 2^(e-p+1) with 2^(p-1) <= m < 2^p and emin <= e <= emax, and the
subnormal multiples of eta = 2^(emin-p+1) below 2^emin. Rounding is to nearest, ties to even, as if the exponent had no
upper limit; what then lies above `max_finite` overflows (IEEE 754-2019, clauses 3.3, 4.3.1 and 7.4).

PyTorch's own cast from float64 to a 16-bit or 8-bit format goes through float32 and so rounds twice; here a value is
rounded once. Values of F are carried as float64, which holds every format exactly.

The four 8-bit formats differ in what they are without (Micikevicius et al., FP8 Formats for Deep Learning, 2022; the
fnuz ones: Noune et al., 8-bit Numerical Formats for Deep Neural Networks, 2022). What becomes of a value beyond the
largest is what PyTorch's cast does, which tests hold for every format: float8_e5m2 has infinities; float8_e4m3fn
saturates, infinities too; the fnuz formats give NaN, and their only zero is positive.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from kernels_core.errors import UsageError

_EXPONENT_MASK = 0x7FF0_0000_0000_0000
_HALF_MANTISSA = 0x0008_0000_0000_0000
_TILE = 1 << 15  # elements; three float64 buffers of this size stay in a core's cache


@dataclasses.dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        name: as in `torch.<name>`.
        dtype: the torch dtype.
        precision: p, bits of the significand with the hidden one.
        emin: exponent of the smallest normal value, 2^emin.
        emax: exponent of the largest finite value.
        max_finite: the largest finite value.
        overflow: what a positive value beyond the format becomes: inf, `max_finite` (it saturates) or NaN.
        signed_zeros: False for formats without a negative zero.
    """

    name: str
    dtype: torch.dtype
    precision: int
    emin: int
    emax: int
    max_finite: float
    overflow: float = math.inf
    signed_zeros: bool = True

    @property
    def has_inf(self) -> bool:
        """True where the format has infinities."""
        return math.isinf(self.overflow)

    @property
    def saturates(self) -> bool:
        """True where what lies beyond the format becomes its largest value."""
        return self.overflow == self.max_finite

    @property
    def unit_roundoff(self) -> float:
        """The unit roundoff u = 2^-p: the largest relative error of one rounding in the normal range."""
        return math.ldexp(1.0, -self.precision)

    @property
    def smallest_normal(self) -> float:
        """The smallest normal value, 2^emin."""
        return math.ldexp(1.0, self.emin)

    @property
    def eta(self) -> float:
        """The smallest subnormal value, 2^(emin-p+1)."""
        return math.ldexp(1.0, self.emin - self.precision + 1)

    @property
    def first_beyond(self) -> float:
        """What would follow `max_finite` if the exponent had no limit: 2^(emax+1) as a rule (inf for float64)."""
        return self.max_finite + math.ldexp(1.0, self.emax - self.precision + 1)


FLOAT64 = Format("float64", torch.float64, 53, -1022, 1023, torch.finfo(torch.float64).max)
FLOAT32 = Format("float32", torch.float32, 24, -126, 127, torch.finfo(torch.float32).max)
BFLOAT16 = Format("bfloat16", torch.bfloat16, 8, -126, 127, torch.finfo(torch.bfloat16).max)
FLOAT16 = Format("float16", torch.float16, 11, -14, 15, 65504.0)
FLOAT8_E4M3FN = Format("float8_e4m3fn", torch.float8_e4m3fn, 4, -6, 8, 448.0, overflow=448.0)
FLOAT8_E5M2 = Format("float8_e5m2", torch.float8_e5m2, 3, -14, 15, 57344.0)
FLOAT8_E4M3FNUZ = Format("float8_e4m3fnuz", torch.float8_e4m3fnuz, 4, -7, 7, 240.0, math.nan, signed_zeros=False)
FLOAT8_E5M2FNUZ = Format("float8_e5m2fnuz", torch.float8_e5m2fnuz, 3, -15, 15, 57344.0, math.nan, signed_zeros=False)

FORMATS = (FLOAT64, FLOAT32, BFLOAT16, FLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT8_E4M3FNUZ, FLOAT8_E5M2FNUZ)
_BY_DTYPE = {fmt.dtype: fmt for fmt in FORMATS}


def format_of(dtype: torch.dtype) -> Format:
    """Return the format of a torch dtype.

    Raises:
        UsageError: the dtype is not one of `FORMATS`.
    """
    if dtype not in _BY_DTYPE:
        known = ", ".join(fmt.name for fmt in FORMATS)
        raise UsageError(f"dtype={dtype} is not a floating-point format known here\nuse one of: {known}")
    return _BY_DTYPE[dtype]


def round_to_nearest(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return RN_F(x): the value of F nearest to x, ties to even, in one rounding.

    Subnormals, signed zeros, infinities and NaN are kept as IEEE 754 has them; overflow gives +-`fmt.overflow`.

    Args:
        x: float64, any shape.
        fmt: F.

    Returns:
        A float64 tensor of values of F (x itself where F is float64).
    """
    _require_float64(x)
    if fmt is FLOAT64:
        return x
    if fmt is FLOAT32:
        return x.to(torch.float32).to(torch.float64)  # one rounding, in hardware
    if x.device.type != "cpu" or x.numel() <= _TILE:
        return _round(x, fmt)
    flat = x.reshape(-1)
    result = torch.empty_like(flat)
    for start in range(0, flat.numel(), _TILE):
        result[start : start + _TILE] = _round(flat[start : start + _TILE], fmt)
    return result.reshape(x.shape)


def _round(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Round by adding and subtracting M = 1.5 2^(e+53-p), e the exponent of x but at least emin.

    |x| < 2^(e+1) <= 2^(e+53-p) / 4, so x + M stays in [2^(e+53-p), 2^(e+54-p)), where the float64 spacing is
    2^(e-p+1), the spacing of F at x. The addition therefore rounds x to a multiple of it, ties to even since M is an
    even multiple, and the subtraction is exact. Above emax the exponent is held at emax + 1: the result is beyond
    max_finite in any case.
    """
    magic = _exponent_bits(x, fmt.emin, fmt.emax + 1)
    magic += ((53 - fmt.precision) << 52) + _HALF_MANTISSA
    shift = magic.view(torch.float64)
    result = (x + shift).sub_(shift)
    if fmt.has_inf:
        # The rounded value is at most max_finite or at least 2^(emax+1), which float64 itself overflows when scaled.
        result.mul_(math.ldexp(1.0, 1023 - fmt.emax)).mul_(math.ldexp(1.0, fmt.emax - 1023))
    elif fmt.saturates:
        result.clamp_(-fmt.max_finite, fmt.max_finite)
    else:
        result.masked_fill_(result.abs() > fmt.max_finite, fmt.overflow)
    return result.copysign_(x) if fmt.signed_zeros else result.add_(0.0)


def round_without_limit(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return the value nearest to x, ties to even, of the format that F would be without a largest exponent.

    Infinities and NaN stay. |x| must be below 2^(970 + p), where the numbers of this sum are finite.

    Args:
        x: float64, any shape.
        fmt: F, narrower than float64.
    """
    _require_float64(x)
    magic = _exponent_bits(x, fmt.emin, 970 + fmt.precision)
    magic += ((53 - fmt.precision) << 52) + _HALF_MANTISSA
    shift = magic.view(torch.float64)
    return (x + shift).sub_(shift)


def next_up(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return the smallest value of F greater than x (IEEE nextUp for x in F); above max_finite `fmt.overflow`."""
    return -next_down(-x, fmt)


def next_down(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return the largest value of F less than x (IEEE nextDown for x in F); below -max_finite -`fmt.overflow`."""
    _require_float64(x)
    if fmt is FLOAT64:
        return torch.nextafter(x, x.new_tensor(-math.inf))
    nearest = round_to_nearest(x, fmt)
    # The spacing below a positive power of two is that of the binade below it, which float64's own neighbour is in.
    just_below = torch.nextafter(nearest, nearest.new_tensor(-math.inf))
    below = nearest - ulp(just_below, fmt)
    below = torch.where(nearest == math.inf, fmt.max_finite, below)
    below = torch.where(below < -fmt.max_finite, -fmt.overflow, below)
    return torch.where(nearest < x, nearest, below)


def ulp(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return the spacing of F at |x|: 2^(e-p+1), e the exponent of x, at least eta.

    Beyond max_finite (also at inf and NaN) it is that of max_finite.

    Args:
        x: float64, not necessarily in F.
        fmt: F.

    Returns:
        A float64 tensor of the shape of x.
    """
    _require_float64(x)
    power = (x.contiguous().view(torch.int64) & _EXPONENT_MASK).view(torch.float64)  # 0 for subnormals, inf for NaN
    return power.clamp_(fmt.smallest_normal, math.ldexp(1.0, fmt.emax)).mul_(math.ldexp(1.0, 1 - fmt.precision))


def ulp_distance(a: torch.Tensor, b: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return how many steps between neighbours in F lead from a to b.

    -0.0 and 0.0 are the same value. Where just one is NaN, or they differ and one is infinite, the distance is inf;
    between two NaN it is 0.

    Args:
        a: float64, values of F.
        b: float64, values of F; broadcast with a.
        fmt: F.

    Returns:
        A float64 tensor (exact up to 2^53 steps).
    """
    a, b = torch.broadcast_tensors(a, b)
    rank_a, rank_b = _rank(a, fmt), _rank(b, fmt)
    same_side = torch.signbit(a) == torch.signbit(b)
    # Ranks of float64 reach 2^63: on opposite sides of zero their sum is formed in float64.
    apart = (rank_a - rank_b).abs().to(torch.float64)
    distance = torch.where(same_side, apart, rank_a.to(torch.float64) + rank_b.to(torch.float64))
    distance = torch.where(a.isfinite() & b.isfinite(), distance, math.inf)
    return torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, distance)


def _rank(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return the number of values of F in (0, |x|], for finite x in F."""
    magnitude = torch.where(x.isfinite(), x.abs(), 0.0)
    binade = (_exponent_bits(magnitude, fmt.emin, fmt.emax) >> 52) - (fmt.emin + 1023)
    # |x| / ulp is exact: an integer below 2^p.
    return (binade << (fmt.precision - 1)) + (magnitude / ulp(magnitude, fmt)).to(torch.int64)


def is_in(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return True where the float64 value x is a value of F (NaN is; an infinity where F has them)."""
    return (round_to_nearest(x, fmt) == x) | x.isnan()


def _exponent_bits(x: torch.Tensor, lowest: int, highest: int) -> torch.Tensor:
    """Return, as int64, the bits of the float64 power of two at the exponent of x, clamped to [lowest, highest]."""
    bits = x.contiguous().view(torch.int64) & _EXPONENT_MASK
    return bits.clamp_((lowest + 1023) << 52, (highest + 1023) << 52)


def _require_float64(x: torch.Tensor) -> None:
    if x.dtype != torch.float64:
        raise UsageError(f"x is {x.dtype}, but rounding starts from float64\npass x.to(torch.float64)")
