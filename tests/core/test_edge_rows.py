"""The edges of every format: NaN, infinities, overflow, saturation, subnormals, signed zeros and halfway cases.

Each row is an exact value that the reference casts to the format, what a kernel returned, and the verdict it must get.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import exactref as er
from kernels_core.coverage import Element
from kernels_core.formats import FLOAT64, FORMATS, Format

INF, NAN = math.inf, math.nan
COVERED, VIOLATED = Element.COVERED, Element.VIOLATED
Row = tuple[str, float, float, Element]


def special(fmt: Format) -> list[Row]:
    rows = [
        ("NaN stays", NAN, NAN, COVERED),
        ("NaN lost", NAN, 1.0, VIOLATED),
        ("NaN out of nothing", 1.0, NAN, VIOLATED),
    ]
    rows += [
        ("zero signs", 0.0, -0.0, COVERED),
        ("zero signs", -0.0, 0.0, COVERED),
        ("zero lost", 0.0, fmt.eta, VIOLATED),
    ]
    return rows + (of_infinities(fmt) if fmt.has_inf else without_infinities(fmt))


def of_infinities(fmt: Format) -> list[Row]:
    return [
        ("infinity stays", INF, INF, COVERED),
        ("infinity changes sign", INF, -INF, VIOLATED),
        ("infinity is cut", INF, fmt.max_finite, VIOLATED),
        ("infinity becomes NaN", -INF, NAN, VIOLATED),
        ("infinity out of nothing", 1.0, INF, VIOLATED),
    ]


def without_infinities(fmt: Format) -> list[Row]:
    kept, other = (fmt.max_finite, NAN) if fmt.saturates else (NAN, fmt.max_finite)
    return [("infinity", INF, kept, COVERED), ("infinity", INF, other, VIOLATED), ("infinity", -INF, -kept, COVERED)]


def near_the_largest(fmt: Format) -> list[Row]:
    top, ulp = fmt.max_finite, fmt.first_beyond - fmt.max_finite
    other = NAN if fmt.saturates or not fmt.has_inf else INF  # what the format does not do where it stays finite
    rows = [("largest", top, top, COVERED), ("largest", -top, -top, COVERED), ("largest", top, other, VIOLATED)]
    rows += [("largest", top, top - ulp, VIOLATED), ("below halfway", top + 0.49 * ulp, top, COVERED)]
    rows += [("below halfway", top + 0.49 * ulp, other, VIOLATED)]
    for label, x in (("beyond halfway", top + 0.51 * ulp), ("far beyond", 8 * top), ("far beyond", -8 * top)):
        sign = math.copysign(1.0, x)
        rows += [(label, x, sign * fmt.overflow, COVERED)]
        rows += [(label, x, NAN if fmt.saturates else sign * top, VIOLATED), (label, x, -sign * top, VIOLATED)]
    return rows


def near_zero(fmt: Format) -> list[Row]:
    eta, normal = fmt.eta, fmt.smallest_normal
    return [
        ("smallest subnormal", eta, eta, COVERED),
        ("smallest subnormal", eta, 0.0, VIOLATED),
        ("smallest subnormal", -eta, -2 * eta, VIOLATED),
        ("halfway to the smallest subnormal", eta / 2, 0.0, COVERED),
        ("below halfway to it", 0.49 * eta, 0.0, COVERED),
        ("below halfway to it", 0.49 * eta, eta, VIOLATED),
        ("above halfway to it", 0.51 * eta, eta, COVERED),
        ("above halfway to it", -0.51 * eta, 0.0, VIOLATED),
        ("largest subnormal", normal - eta, normal - eta, COVERED),
        ("largest subnormal", normal - eta, normal, VIOLATED),
        ("smallest normal", normal, normal, COVERED),
        ("smallest normal", normal, normal - eta, VIOLATED),
        ("flushed", normal - eta, 0.0, VIOLATED if fmt.precision > 2 else COVERED),
    ]


def halfway(fmt: Format) -> list[Row]:
    u = fmt.unit_roundoff
    sliver = u * 2.0**-9
    return [
        ("halfway, to even", 1 + u, 1.0, COVERED),
        ("halfway, to even", 1 + 3 * u, 1 + 4 * u, COVERED),
        ("halfway, too far", 1 + u, 1 + 4 * u, VIOLATED),
        ("just above halfway", 1 + u + sliver, 1 + 2 * u, COVERED),
        ("just above halfway", 1 + u + sliver, 1.0, VIOLATED),
        ("just below halfway", 1 + u - sliver, 1.0, COVERED),
        ("just below halfway", 1 + u - sliver, 1 + 2 * u, VIOLATED),
        ("exact", 1 + 2 * u, 1 + 2 * u, COVERED),
        ("exact", 1 + 2 * u, 1.0, VIOLATED),
    ]


def rows_of(fmt: Format) -> list[Row]:
    return [*special(fmt), *near_the_largest(fmt), *near_zero(fmt), *halfway(fmt)]


def decided(fmt: Format, rows: list[Row]) -> list[Element]:
    """Return the verdicts on all rows, cast from float64 to the format and given one at a time."""
    x = torch.tensor([row[1] for row in rows], dtype=torch.float64)
    actual = torch.tensor([row[2] for row in rows], dtype=torch.float64)
    assert torch.equal(actual.to(fmt.dtype).double().nan_to_num(7.7), actual.nan_to_num(7.7)), "not in the format"
    result = er.reference(lambda x: x.to(fmt.dtype))(x)
    return [Element(int(code)) for code in result.verdict(actual.to(fmt.dtype))]


@pytest.mark.parametrize("fmt", [fmt for fmt in FORMATS if fmt is not FLOAT64], ids=lambda fmt: fmt.name)
def test_edge_rows_of_a_cast_get_their_verdict(fmt: Format) -> None:
    rows = rows_of(fmt)
    wrong = [(*row, found) for row, found in zip(rows, decided(fmt, rows), strict=True) if found is not row[3]]
    assert not wrong


def test_edge_rows_of_float64_get_their_verdict() -> None:
    rows = [*special(FLOAT64), *(row for row in near_zero(FLOAT64) if (row[1] / FLOAT64.eta).is_integer())]
    wrong = [(*row, found) for row, found in zip(rows, decided(FLOAT64, rows), strict=True) if found is not row[3]]
    assert not wrong


@pytest.mark.parametrize("fmt", FORMATS[1:], ids=lambda fmt: fmt.name)
def test_the_cast_of_torch_itself_is_covered_on_every_edge(fmt: Format) -> None:
    values = sorted({abs(row[1]) for row in rows_of(fmt) if math.isfinite(row[1])})
    x = torch.tensor([*values, *(-v for v in values), INF, -INF, NAN], dtype=torch.float64)
    assert er.reference(lambda x: x.to(fmt.dtype))(x).covers(x.to(fmt.dtype)).all()


SATURATING = [
    (fmt, word)
    for fmt, word in itertools.product(FORMATS[4:], ("saturate", "nan", "inf"))
    if word != "inf" or fmt.has_inf
]


@pytest.mark.parametrize(("fmt", "word"), SATURATING, ids=lambda value: getattr(value, "name", value))
def test_a_declared_overflow_is_the_only_one_that_is_covered(fmt: Format, word: str) -> None:
    becomes = {"saturate": fmt.max_finite, "nan": NAN, "inf": INF}
    ulp = fmt.first_beyond - fmt.max_finite
    x = torch.tensor([2 * fmt.max_finite, fmt.max_finite + 0.51 * ulp, INF, fmt.max_finite + 0.49 * ulp])
    result = er.reference(lambda x: er.float8_cast(x, fmt.dtype, overflow=word))(x)
    for name, value in becomes.items():
        if name == "inf" and not fmt.has_inf:
            continue
        kernel = torch.tensor([value, value, value, fmt.max_finite]).to(fmt.dtype)
        assert result.covers(kernel).tolist() == [name == word] * 3 + [True], name


def test_a_tie_beyond_the_largest_value_of_float8_e4m3fn_is_no_overflow() -> None:
    x = torch.tensor([464.0, 464.01])
    cast = er.float8_cast(x, torch.float8_e4m3fn, overflow="nan").float()
    assert cast[0] == 448
    assert cast[1].isnan()


def test_float8_cast_refuses_what_it_does_not_know() -> None:
    with pytest.raises(er.UsageError, match="overflow: float8_e4m3fn has no overflow 'inf'\nknown: saturate, nan"):
        er.float8_cast(torch.ones(1), torch.float8_e4m3fn, overflow="inf")
    with pytest.raises(er.UsageError, match="no overflow 'saturat', did you mean \"saturate\""):
        er.float8_cast(torch.ones(1), torch.float8_e5m2, overflow="saturat")
    with pytest.raises(
        er.UsageError, match=r"expected an 8-bit floating dtype, got float16\nuse x.to\(torch.float16\)"
    ):
        er.float8_cast(torch.ones(1), torch.float16, overflow="inf")
