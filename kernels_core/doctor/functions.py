"""The worst error of PyTorch's float64 functions, against FLINT, on random and on hard arguments.

PyTorch computes whole tensors by vectorised code and the rest by the C library, so each argument is tried both ways.
Arguments are hard where an implementation reduces them (next to multiples of pi/2 and of log 2, the largest ones),
where a result is near 0 or 1, and at the ends of the range. Results below the smallest normal number are left out:
the filter lets them be flushed.

An error is counted in ulp of the exact value, ulp(f) = 2^(floor(log2 |f|) - 52); a function that the table gives n ulp
may err by n + 1/2.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flint
import torch

from kernels_core.doctor.measurement import Measurement
from kernels_core.filter.arithmetic import FLOAT64_FUNCTION_ULP
from kernels_core.rules.special_functions import MEASURED

Tensor = torch.Tensor
_BITS = 160  # of FLINT's balls: some functions cancel up to 53 bits of it
_TINY = 2.0**-1022


@dataclasses.dataclass(frozen=True)
class Function:
    """One function of PyTorch with its exact value.

    Attributes:
        name: as in the accuracy table.
        torch: float64 tensors to a float64 tensor.
        exact: balls to a ball.
        low, high: the range of the arguments, for each argument the same.
        hard: further arguments.
        arguments: how many it takes.
    """

    name: str
    torch: Callable[..., Tensor]
    exact: Callable[..., Any]
    low: float = -1e300
    high: float = 1e300
    hard: Sequence[float] = ()
    arguments: int = 1


def _near(*middles: float) -> list[float]:
    """Return each number with its neighbours and what lies a little beside it."""
    found = []
    for x in middles:
        found += [x, math.nextafter(x, math.inf), math.nextafter(x, -math.inf)]
        found += [x + sign * 2.0**-k * max(abs(x), 2.0**-30) for k in range(2, 52, 5) for sign in (1, -1)]
    return found


_SMALL = [sign * 2.0**-k * m for k in range(0, 60, 3) for m in (1.0, 1.37) for sign in (1, -1)]
_HALF_PI = [k * math.pi / 2 for k in (*range(1, 40), 10**4, 10**8, 2**40, 2**52)]
# The double that comes nearest to a multiple of pi/2 of all, 6381956970095103 2^797 (Muller, Elementary Functions).
_ANGLES = [*_SMALL, *_HALF_PI, 6381956970095103.0 * 2.0**797, 2.0**1000, 1e22]
_LOGS = [*_near(1.0), 2.0**-1022, 1.7e308, *(2.0**k * 1.0001 for k in range(-1000, 1000, 77))]
_EXPONENTS = [*_SMALL, *(k * math.log(2) / 2 for k in range(-80, 81, 3)), 709.7, -708.3, 700.0, -700.0]
_UNIT = [*_SMALL, *(x for x in _near(1.0, -1.0, 0.5, -0.5) if abs(x) <= 1)]


def _one(x: Any) -> Any:
    return flint.arb(1) + x


FUNCTIONS: tuple[Function, ...] = (
    Function("sqrt", torch.sqrt, lambda x: x.sqrt(), 0.0, 1e300, _LOGS),
    Function("rsqrt", torch.rsqrt, lambda x: x.rsqrt(), 1e-300, 1e300, _LOGS),
    Function("reciprocal", torch.reciprocal, lambda x: 1 / x, 1e-300, 1e300, _LOGS),
    Function("division", torch.div, lambda x, y: x / y, 1e-150, 1e150, _LOGS, 2),
    Function("exp", torch.exp, lambda x: x.exp(), -708, 709, _EXPONENTS),
    Function("exp2", torch.exp2, lambda x: flint.arb(2) ** x, -1021, 1023, [*_SMALL, 1022.9, -1021.5, 0.5, 3.0]),
    Function("expm1", torch.expm1, lambda x: x.expm1(), -708, 709, _EXPONENTS),
    Function("log", torch.log, lambda x: x.log(), 1e-300, 1e300, _LOGS),
    Function("log2", torch.log2, lambda x: x.log() / flint.arb.const_log2(), 1e-300, 1e300, _LOGS),
    Function("log10", torch.log10, lambda x: x.log() / flint.arb(10).log(), 1e-300, 1e300, _LOGS),
    Function("log1p", torch.log1p, lambda x: x.log1p(), -0.999, 1e300, [*_SMALL[2:], *_LOGS]),
    Function("sin", torch.sin, lambda x: x.sin(), hard=_ANGLES),
    Function("cos", torch.cos, lambda x: x.cos(), hard=_ANGLES),
    Function("tan", torch.tan, lambda x: x.tan(), hard=_ANGLES),
    Function("asin", torch.asin, lambda x: x.asin(), -1, 1, _UNIT),
    Function("acos", torch.acos, lambda x: x.acos(), -1, 1, _UNIT),
    Function("atan", torch.atan, lambda x: x.atan(), hard=_SMALL),
    Function("atan2", torch.atan2, lambda y, x: flint.arb.atan2(y, x), hard=_SMALL, arguments=2),
    Function("sinh", torch.sinh, lambda x: x.sinh(), -708, 708, _EXPONENTS),
    Function("cosh", torch.cosh, lambda x: x.cosh(), -708, 708, _EXPONENTS),
    Function("tanh", torch.tanh, lambda x: x.tanh(), -25, 25, _EXPONENTS),
    Function("asinh", torch.asinh, lambda x: x.asinh(), hard=_SMALL),
    Function("acosh", torch.acosh, lambda x: x.acosh(), 1.0, 1e300, [x for x in _near(1.0, 2.0) if x >= 1]),
    Function("atanh", torch.atanh, lambda x: x.atanh(), -1, 1, [x for x in _UNIT if abs(x) < 1]),
    Function("erf", torch.erf, lambda x: x.erf(), -7, 7, _SMALL),
    Function("erfc", torch.erfc, lambda x: x.erfc(), -7, 26, _SMALL),
    Function("sigmoid", torch.sigmoid, lambda x: 1 / _one((-x).exp()), -708, 708, _EXPONENTS),
    Function("pow", torch.pow, lambda x, y: x**y, 1e-3, 100, [*_near(1.0), 2.0, 0.5, 3.0], 2),
    Function("hypot", torch.hypot, lambda x, y: (x * x + y * y).sqrt(), hard=_SMALL, arguments=2),
    Function("erfinv", torch.erfinv, lambda x: x.erfinv(), -1, 1, [x for x in _UNIT if abs(x) < 1]),
    Function("lgamma", torch.lgamma, lambda x: x.lgamma(), 1e-300, 1e300, _near(1.0, 2.0)),
    Function("i0", torch.special.i0, lambda x: x.bessel_i(0), -700, 700, _SMALL),
    Function("i1", torch.special.i1, lambda x: x.bessel_i(1), -700, 700, _SMALL),
    Function("i0e", torch.special.i0e, lambda x: x.bessel_i(0) * (-abs(x)).exp(), -700, 700, _SMALL),
    Function("i1e", torch.special.i1e, lambda x: x.bessel_i(1) * (-abs(x)).exp(), -700, 700, _SMALL),
    Function("erfcx", torch.special.erfcx, lambda x: (x * x).exp() * x.erfc(), 0, 26, [x for x in _SMALL if x > 0]),
)


def limit(name: str) -> float:
    """Return what the filter takes for granted of a float64 function, in ulp of the exact value."""
    own: Mapping[str, float] = {**MEASURED, "division": 0.0}
    return own.get(name, FLOAT64_FUNCTION_ULP) + 0.5


def measured(points: int = 2000, seed: int = 0, functions: Sequence[Function] = FUNCTIONS) -> list[Measurement]:
    """Return the worst error of every function.

    Args:
        points: random arguments per function, on top of the hard ones.
        seed: of random arguments.
        functions: to be measured.
    """
    before = flint.ctx.prec
    flint.ctx.prec = _BITS
    try:
        return [_measured(function, points, seed) for function in functions]
    finally:
        flint.ctx.prec = before


def _measured(function: Function, points: int, seed: int) -> Measurement:
    columns = arguments(function, points, torch.Generator().manual_seed(seed))
    whole = function.torch(*columns)
    single = function.torch(*(x.repeat_interleave(2)[::2] for x in columns))  # not contiguous: one by one
    exact = [_exact(function, values) for values in zip(*(x.tolist() for x in columns), strict=True)]
    errors = [max(_ulp(a, e), _ulp(b, e)) for a, b, e in zip(whole.tolist(), single.tolist(), exact, strict=True)]
    worst = max(range(len(errors)), key=errors.__getitem__)
    where = ", ".join(repr(float(x[worst])) for x in columns)
    return Measurement("function", function.name, errors[worst], limit(function.name), "ulp", where, len(errors))


def arguments(function: Function, points: int, generator: torch.Generator) -> list[Tensor]:
    """Return the arguments of a function: hard ones, uniform ones and uniform exponents, within its range."""
    columns = []
    for _ in range(function.arguments):
        low, high = function.low, function.high
        half = points // 2
        uniform = _unit(half, generator) * (min(high, 50) - max(low, -50)) + max(low, -50)
        sign = torch.where(_unit(points - half, generator) < 0.5, -1.0, 1.0)
        spread = sign * torch.exp2(_unit(points - half, generator) * 2000 - 1000)
        inside = spread[(spread >= low) & (spread <= high)]
        hard = [x for x in function.hard if low <= x <= high]
        if function.arguments == 2:
            hard = [hard[int(n)] for n in torch.randint(len(hard), (200,), generator=generator)]
        columns.append(torch.cat([uniform, inside, torch.tensor(hard, dtype=torch.float64)]))
    shortest = min(len(x) for x in columns)
    return [x[:shortest] for x in columns]


def _unit(count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, generator=generator, dtype=torch.float64)


def _exact(function: Function, values: Sequence[float]) -> Any:
    return function.exact(*(flint.arb(x) for x in values))


def _ulp(actual: float, exact: Any) -> float:
    """Return |actual - exact| in ulp of exact; 0 where the exact value is beyond the normal range, or not known."""
    if not exact.is_finite() or not exact.rel_accuracy_bits() > 60:
        return 0.0
    size = abs(float(exact.mid()))
    if not _TINY <= size <= 1.7976931348623157e308:
        return 0.0
    if not math.isfinite(actual):
        return math.inf
    ulp = math.ldexp(1.0, math.frexp(size)[1] - 53)
    return float(abs(flint.arb(actual) - exact).mid() / ulp)
