"""Rounding is proved against exact rationals, and exhaustively where a format is small enough."""

import math
import time
from fractions import Fraction

import flint
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_core.errors import UsageError
from kernels_core.exact.rounding import round_ball, round_rational
from kernels_core.formats import (
    BFLOAT16,
    FLOAT8_E4M3FN,
    FLOAT8_E4M3FNUZ,
    FLOAT8_E5M2,
    FLOAT8_E5M2FNUZ,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORMATS,
    Format,
    format_of,
    is_in,
    next_down,
    next_up,
    round_to_nearest,
    ulp,
    ulp_distance,
)

SMALL = (BFLOAT16, FLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT8_E4M3FNUZ, FLOAT8_E5M2FNUZ)
NARROW = (FLOAT32, *SMALL)


def by_name(fmt: Format) -> str:
    return fmt.name


every = pytest.mark.parametrize("fmt", FORMATS, ids=by_name)
narrow = pytest.mark.parametrize("fmt", NARROW, ids=by_name)
small = pytest.mark.parametrize("fmt", SMALL, ids=by_name)


def all_values(fmt: Format) -> torch.Tensor:
    """Return every value of a small format, as float64, in the order of its bits."""
    integer = torch.int16 if fmt.dtype.itemsize == 2 else torch.uint8
    bits = torch.arange(1 << (8 * fmt.dtype.itemsize)).to(integer)
    return bits.view(fmt.dtype).to(torch.float32).to(torch.float64)


def finite_sorted(fmt: Format) -> torch.Tensor:
    values = all_values(fmt)
    return values[values.isfinite()].unique()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True where values are equal, NaN to NaN and zeros with their signs."""
    equal = (a == b) & (torch.signbit(a) == torch.signbit(b)) | (a.isnan() & b.isnan())
    return bool(equal.all())


def grid(fmt: Format) -> torch.Tensor:
    """Return values, halfway points and their float64 neighbours, near 0, at the subnormal border and at overflow."""
    eta, normal, top = fmt.eta, fmt.smallest_normal, ulp_at(fmt.max_finite, fmt)
    counts = torch.arange(0, 4 * min(1 << fmt.precision, 256), dtype=torch.float64) / 4
    points = [counts * eta, normal + (counts - counts[-1] / 2) * eta, 1 + counts * 2 * fmt.unit_roundoff]
    points.append(1 - counts * fmt.unit_roundoff / 4)
    points.append(fmt.max_finite - counts * top / 2)
    points.append(fmt.max_finite + torch.arange(0, 9, dtype=torch.float64) * top / 8)
    points.append(torch.tensor([0.0, 5e-324, 1e-308, 1e308, torch.finfo(torch.float64).max], dtype=torch.float64))
    x = torch.cat(points)
    x = x[x.isfinite()]
    x = torch.cat([x, neighbour(x, math.inf), neighbour(x, -math.inf)])
    x = x[x.isfinite()]
    return torch.cat([x, -x])


def ulp_at(x: float, fmt: Format) -> float:
    return ulp(torch.tensor(x, dtype=torch.float64), fmt).item()


def neighbour(x: torch.Tensor, towards: float) -> torch.Tensor:
    return torch.nextafter(x, torch.full_like(x, towards))


def rational(x: float) -> flint.fmpq:
    numerator, denominator = x.as_integer_ratio()
    return flint.fmpq(numerator, denominator)


def equal(a: float, b: float) -> bool:
    """Return True for equal numbers and for two NaN."""
    return a == b or (math.isnan(a) and math.isnan(b))


def round_by_definition(x: Fraction, fmt: Format) -> float:
    """Round with the definition of a format alone: the quantum at the exponent of x, then Python's round-half-even."""
    if x == 0:
        return 0.0
    exponent = max(fmt.emin, abs(x.numerator).bit_length() - x.denominator.bit_length() - 1)
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    quantum = Fraction(2) ** (exponent - fmt.precision + 1)
    rounded = round(x / quantum) * quantum
    if abs(rounded) > Fraction(fmt.max_finite):
        return math.copysign(1.0, x) * fmt.overflow
    return math.copysign(float(abs(rounded)), x)


@every
def test_format_constants_are_those_of_torch(fmt: Format) -> None:
    info = torch.finfo(fmt.dtype)
    assert (fmt.max_finite, fmt.smallest_normal) == (info.max, info.smallest_normal)
    assert fmt is FLOAT8_E5M2FNUZ or 2 * fmt.unit_roundoff == info.eps, "finfo of it is wrong: see the next test"
    assert math.ldexp(1.0, fmt.emax) <= fmt.max_finite < math.ldexp(1.0, fmt.emax) * 2
    assert format_of(fmt.dtype) is fmt


@small
def test_format_constants_are_those_of_all_the_values(fmt: Format) -> None:
    values = finite_sorted(fmt)
    above_one = values[values > 1][0].item()
    assert (above_one - 1, values.max().item()) == (2 * fmt.unit_roundoff, fmt.max_finite)
    assert values[values > 0][0].item() == fmt.eta == fmt.smallest_normal * 2 * fmt.unit_roundoff
    assert fmt.has_inf is bool(all_values(fmt).isinf().any())
    assert fmt.signed_zeros is bool((torch.signbit(all_values(fmt)) & (all_values(fmt) == 0)).any())


def test_finfo_of_float8_e5m2fnuz_has_half_the_distance_from_one_to_the_next_value() -> None:
    values = finite_sorted(FLOAT8_E5M2FNUZ)
    assert values[values > 1][0].item() == 1.25
    assert torch.finfo(torch.float8_e5m2fnuz).eps == 0.125, "PyTorch mended it: the exception above and finding can go"


def test_format_of_integer_dtype_is_refused() -> None:
    with pytest.raises(UsageError, match=r"dtype=torch.int32 is not a floating-point format.*\nuse one of: float64, "):
        format_of(torch.int32)


def test_rounding_refuses_what_is_not_float64() -> None:
    with pytest.raises(UsageError, match=r"x is torch.float32.*\npass x.to\(torch.float64\)"):
        round_to_nearest(torch.ones(1), BFLOAT16)


@small
def test_rounding_keeps_every_value_of_the_format(fmt: Format) -> None:
    values = all_values(fmt)
    assert same(round_to_nearest(values, fmt), values)
    assert is_in(values, fmt).all()


@small
def test_rounding_of_every_halfway_point_goes_to_even_and_its_neighbours_to_the_nearest(fmt: Format) -> None:
    values = finite_sorted(fmt)
    below, above = values[:-1], values[1:]
    halfway = (below + above) / 2  # exact in float64
    assert same(round_to_nearest(neighbour(halfway, -math.inf), fmt) + 0.0, below + 0.0)
    assert same(round_to_nearest(neighbour(halfway, math.inf), fmt) + 0.0, above + 0.0)
    tied = round_to_nearest(halfway, fmt)
    assert ((tied == below) | (tied == above)).all()
    quantum = ulp(torch.minimum(below.abs(), above.abs()), fmt)
    assert (torch.remainder(tied / quantum, 2) == 0).all()
    assert not is_in(halfway, fmt).any()


@small
def test_rounding_agrees_with_the_cast_of_torch_from_float32_in_which_it_rounds_once(fmt: Format) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=generator, dtype=torch.int64).to(torch.int32)
    x = torch.cat([bits.view(torch.float32), torch.linspace(-500, 500, 4001), torch.linspace(-7e4, 7e4, 4001)])
    cast = x.to(fmt.dtype).to(torch.float32).to(torch.float64)
    rounded = round_to_nearest(x.to(torch.float64), fmt)
    assert same(rounded, cast)


def test_rounding_to_bfloat16_is_single_where_the_cast_of_torch_rounds_twice() -> None:
    x = torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=torch.float64)
    assert round_to_nearest(x, BFLOAT16).item() == 1 + 2.0**-7
    assert x.to(torch.bfloat16).item() == 1.0, "PyTorch rounds once now: this test and the remark in formats.py can go"


@every
def test_rounding_agrees_with_the_definition_near_zero_the_subnormal_border_and_overflow(fmt: Format) -> None:
    x = grid(fmt)
    if fmt in (FLOAT64, FLOAT32):
        x = x[:: max(1, x.numel() // 3000)]
    if fmt is FLOAT64:
        x = x[(x.abs() < 4) | (x.abs() > 1e308)][::7]
        assert same(round_to_nearest(x, fmt), x)
        return
    exact = [round_by_definition(Fraction(value), fmt) for value in x.tolist()]
    exact_tensor = torch.tensor(exact, dtype=torch.float64).copysign(x)
    assert same(round_to_nearest(x, fmt), exact_tensor if fmt.signed_zeros else exact_tensor + 0.0)


@every
def test_rounding_agrees_with_exact_rationals_on_random_float64(fmt: Format) -> None:
    generator = torch.Generator().manual_seed(1)
    span = fmt.emax - fmt.emin + 2 * fmt.precision + 4
    exponent = torch.rand(3000, generator=generator, dtype=torch.float64) * span + fmt.emin - fmt.precision - 2
    x = torch.exp2(exponent.clamp(-1070, 1023)) * torch.randn(3000, generator=generator, dtype=torch.float64).sign()
    exact = torch.tensor([round_rational(rational(value), fmt) for value in x.tolist()], dtype=torch.float64)
    exact = exact.copysign(x)
    assert same(round_to_nearest(x, fmt), exact if fmt.signed_zeros else exact + 0.0)


@narrow
def test_rounding_keeps_nan_infinities_and_signed_zeros(fmt: Format) -> None:
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, -1e-320], dtype=torch.float64)
    rounded = round_to_nearest(special, fmt)
    assert rounded[0].isnan()
    assert same(rounded[1:3], torch.tensor([fmt.overflow, -fmt.overflow], dtype=torch.float64))
    assert torch.signbit(rounded[3:]).tolist() == [False, fmt.signed_zeros, fmt.signed_zeros]
    assert (rounded[3:] == 0).all()


@small
def test_rounding_handles_layouts_scalars_empties_and_leaves_its_input_alone(fmt: Format) -> None:
    x = torch.randn(300, 400, dtype=torch.float64)
    before = x.clone()
    flat = round_to_nearest(x.reshape(-1)[:100], fmt)
    assert same(round_to_nearest(x, fmt).reshape(-1)[:100], flat)
    assert same(round_to_nearest(x.t(), fmt), round_to_nearest(x, fmt).t())
    assert same(round_to_nearest(x[::2, ::3], fmt), round_to_nearest(x, fmt)[::2, ::3])
    assert round_to_nearest(x[0, 0], fmt).shape == ()
    assert round_to_nearest(x[:0], fmt).shape == (0, 400)
    assert same(x, before)


@pytest.mark.parametrize("fmt", [BFLOAT16, FLOAT16], ids=by_name)
def test_rounding_of_four_million_elements_takes_less_than_150_ms(fmt: Format) -> None:
    x = torch.randn(4_000_000, dtype=torch.float64)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        round_to_nearest(x, fmt)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.15


@given(numerator=st.integers(-(2**200), 2**200), denominator=st.integers(1, 2**200), shift=st.integers(-300, 300))
def test_round_rational_agrees_with_the_definition(numerator: int, denominator: int, shift: int) -> None:
    q = Fraction(numerator, denominator) * Fraction(2) ** shift
    for fmt in FORMATS[1:]:
        assert equal(round_rational(flint.fmpq(q.numerator, q.denominator), fmt), round_by_definition(q, fmt))


@given(st.fractions())
def test_round_rational_to_float64_agrees_with_python(q: Fraction) -> None:
    assert round_rational(flint.fmpq(q.numerator, q.denominator), FLOAT64) == q.numerator / q.denominator


@every
def test_round_rational_overflows_halfway_beyond_the_largest_value(fmt: Format) -> None:
    top = rational(fmt.max_finite)
    half = rational(ulp_at(fmt.max_finite, fmt)) / 2
    sliver = flint.fmpq(1, 10**400)
    assert round_rational(top + half - sliver, fmt) == fmt.max_finite
    assert equal(round_rational(-(top + half + sliver), fmt), -fmt.overflow)


@every
def test_round_rational_goes_to_zero_up_to_half_of_the_smallest_subnormal(fmt: Format) -> None:
    half = rational(fmt.eta) / 2
    sliver = flint.fmpq(1, 10**400)
    assert round_rational(half, fmt) == 0
    assert round_rational(half + sliver, fmt) == fmt.eta
    assert round_rational(flint.fmpq(1, 10**5000), fmt) == 0


@every
def test_round_ball_decides_only_where_both_ends_round_alike(fmt: Format) -> None:
    third = flint.arb(1) / 3
    assert round_ball(third, fmt) == (None if fmt is FLOAT64 else round_rational(flint.fmpq(1, 3), fmt))
    with flint.ctx.workprec(200):
        tie = flint.arb(1) + flint.arb(fmt.unit_roundoff)
    assert round_ball(tie, fmt) == 1.0
    with flint.ctx.workprec(200):
        around_tie = tie + flint.arb(0, 1e-30)
    assert round_ball(around_tie, fmt) is None


@every
def test_round_ball_handles_the_ends_of_the_range(fmt: Format) -> None:
    huge, tiny = flint.arb(10**6).exp(), (-flint.arb(10**15)).exp()
    assert equal(round_ball(huge, fmt), fmt.overflow)
    assert round_ball(tiny, fmt) == 0.0
    assert round_ball(flint.arb(0, 1) * huge, fmt) is None
    assert round_ball(flint.arb("nan"), fmt) is None
    assert round_ball(flint.arb(0, math.inf), fmt) is None
    assert equal(round_ball(flint.arb("-inf"), fmt), -fmt.overflow)


@small
def test_neighbours_of_every_value_are_the_next_values(fmt: Format) -> None:
    values = finite_sorted(fmt)
    assert same(next_up(values, fmt)[:-1] + 0.0, values[1:] + 0.0)
    assert same(next_down(values, fmt)[1:] + 0.0, values[:-1] + 0.0)
    assert equal(next_up(values, fmt)[-1].item(), fmt.overflow)
    assert equal(next_down(values, fmt)[0].item(), -fmt.overflow)


@small
def test_neighbours_of_points_between_values_are_the_values_around_them(fmt: Format) -> None:
    values = finite_sorted(fmt)
    for share in (0.25, 0.5, 0.875):
        between = values[:-1] + (values[1:] - values[:-1]) * share
        assert same(next_up(between, fmt) + 0.0, values[1:] + 0.0)
        assert same(next_down(between, fmt) + 0.0, values[:-1] + 0.0)


@pytest.mark.parametrize("fmt", [BFLOAT16, FLOAT16, FLOAT8_E5M2, FLOAT32, FLOAT64], ids=by_name)
def test_neighbours_of_infinities_and_zeros(fmt: Format) -> None:
    x = torch.tensor([-math.inf, math.inf, 0.0, -0.0, math.nan], dtype=torch.float64)
    up, down = next_up(x, fmt).tolist(), next_down(x, fmt).tolist()
    assert up[:4] == [-fmt.max_finite, math.inf, fmt.eta, fmt.eta]
    assert down[:4] == [-math.inf, fmt.max_finite, -fmt.eta, -fmt.eta]
    assert math.isnan(up[4])
    assert math.isnan(down[4])


def test_neighbours_in_float32_are_those_of_torch() -> None:
    x = torch.cat([torch.randn(1000), 2.0 ** torch.arange(-149, 128), -(2.0 ** torch.arange(-149, 128))])
    up = torch.nextafter(x, torch.full_like(x, math.inf)).to(torch.float64)
    assert same(next_up(x.to(torch.float64), FLOAT32), up)


@small
def test_ulp_is_the_distance_to_the_next_larger_magnitude(fmt: Format) -> None:
    values = finite_sorted(fmt)
    values = values[(values >= 0) & (values < fmt.max_finite)]
    assert same(ulp(values, fmt), next_up(values, fmt) - values)
    assert same(ulp(-values, fmt), ulp(values, fmt))


@every
def test_ulp_is_at_least_eta_and_at_most_that_of_the_largest_value(fmt: Format) -> None:
    x = torch.tensor([0.0, 5e-324, 1e308, math.inf, math.nan], dtype=torch.float64)
    top = math.ldexp(1.0, fmt.emax - fmt.precision + 1)
    assert ulp(x, fmt).tolist()[:2] == [fmt.eta, fmt.eta]
    assert ulp(x, fmt).tolist()[3:] == [top, top]


@small
def test_ulp_distance_counts_the_values_between(fmt: Format) -> None:
    values = finite_sorted(fmt)
    ranks = torch.arange(values.numel(), dtype=torch.float64)
    assert same(ulp_distance(values, values[:1], fmt), ranks)
    assert same(ulp_distance(values.flip(0), values[:1], fmt), ranks.flip(0))


def test_ulp_distance_of_float64_is_exact_next_to_each_other_and_wide_across_zero() -> None:
    x = torch.tensor([1.0, 1e300, 5e-324, -1e-300], dtype=torch.float64)
    assert ulp_distance(x, next_up(x, FLOAT64), FLOAT64).tolist() == [1.0] * 4
    largest = torch.tensor(FLOAT64.max_finite, dtype=torch.float64)
    assert ulp_distance(-largest, largest, FLOAT64).item() == float(2 * (2047 * 2**52 - 1))


def test_ulp_distance_of_zeros_is_zero_and_of_special_values_infinite() -> None:
    a = torch.tensor([0.0, math.nan, math.inf, math.inf, math.nan, -math.inf], dtype=torch.float64)
    b = torch.tensor([-0.0, math.nan, math.inf, 1.0, 1.0, math.inf], dtype=torch.float64)
    for fmt in FORMATS:
        assert ulp_distance(a, b, fmt).tolist() == [0.0, 0.0, 0.0, math.inf, math.inf, math.inf]


@small
def test_is_in_rejects_values_that_need_more_bits(fmt: Format) -> None:
    points = [1 + fmt.unit_roundoff, fmt.eta / 2, fmt.max_finite * 2, 1 + 2 * fmt.unit_roundoff, math.nan]
    x = torch.tensor(points, dtype=torch.float64)
    assert is_in(x, fmt).tolist() == [False, False, False, True, True]
    assert is_in(torch.tensor(math.inf, dtype=torch.float64), fmt).item() is fmt.has_inf
