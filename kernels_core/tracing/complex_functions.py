"""Functions of complex numbers in real operations: what each means, and which roundings kernels may make in it.

Quotients. z / w with w = c + i d is (a c + b d) / (c^2 + d^2) and (b c - a d) / (c^2 + d^2). With n roundings of each
term's path above and m below, a kernel errs by (n + m + 1) u of the sum of the terms' sizes over the denominator:

    as written                                  n = 2   m = 2
    Smith: r = d / c, (a + b r) (1 / (c + d r))     3       4   (1 / x is the rounding more)
    scaled by s = 1 / max(|c|, |d|)                 4       4   a s, c s, their product, the sum; c s twice, ...

(s itself cancels: one rounded number above and below.) Two roundings more of each product grant all three. A real
divisor t makes the third one err by 5 u: a s, t s, their product, (t s)^2 and the division, where t s counts once more
below than above; four are granted on top of the one of a / t.
Sources: Smith, Algorithm 116, CACM 5 (1962); PyTorch, aten/src/ATen/cpu/vec (scaled), c10/util/complex.h (Smith).

Functions that exist to avoid a cancellation are written so that it is avoided: a bound is that of what stands here.
"""

from __future__ import annotations

import cmath
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.complex_tensor._core import ComplexTensor

Tensor = torch.Tensor
REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_MORE_OF_A_TERM, _MORE_BY_A_REAL = 2, 4  # roundings, see the module


@torch.library.custom_op("exactref::regrouped", mutates_args=())
def regrouped(value: Tensor, roundings: int) -> Tensor:
    """The value itself, which a kernel may have rounded so many times more on its way."""
    return value.clone()


@regrouped.register_fake
def _(value: Tensor, roundings: int) -> Tensor:
    return torch.empty_like(value)


def parts(value: Any) -> tuple[Tensor, Tensor]:
    """Return real and imaginary part of a tensor of any dtype."""
    if isinstance(value, ComplexTensor):
        return value.re, value.im
    if value.dtype in REAL:
        pair = torch.view_as_real(value.resolve_conj())
        return pair[..., 0], pair[..., 1]
    return value, torch.zeros_like(value)


def lifted(value: Any) -> Any:
    """Return a real tensor as the ComplexTensor that PyTorch promotes it to beside a complex number."""
    if not isinstance(value, Tensor) or isinstance(value, ComplexTensor):
        return value
    value = value.to(REAL[torch.result_type(value, 1j)])
    return ComplexTensor(value, torch.zeros_like(value))


def by_parts(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a sum or difference; a number keeps the digits that the format of the result has no room for."""

    def apply(a: Any, b: Any, alpha: Any = 1) -> Any:
        if alpha != 1:
            b = product(b, alpha) if isinstance(b, Tensor) else b * alpha
        (re, im), (c, d) = _both_parts(a), _both_parts(b)
        return ComplexTensor(operation(re, c), operation(im, d))

    return apply


def _both_parts(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Tensor):
        return parts(value)
    return (value.real, value.imag) if isinstance(value, complex) else (value, 0)


def product(a: Any, b: Any) -> Any:
    """A real factor multiplies both parts; two complex ones make four products."""
    if (not isinstance(a, ComplexTensor) and isinstance(b, ComplexTensor)) or isinstance(a, complex):
        a, b = b, a
    if not isinstance(a, ComplexTensor):  # a real tensor and a complex number
        return ComplexTensor(a * b.real, a * b.imag)
    if isinstance(b, (int, float)) or (isinstance(b, Tensor) and not b.is_complex()):
        return ComplexTensor(a.re * b, a.im * b)
    re, im = (b.real, b.imag) if isinstance(b, complex) else parts(b)
    return ComplexTensor(a.re * re - a.im * im, a.re * im + a.im * re)


def quotient(a: Any, b: Any) -> Any:
    """Return a / b, one of them complex."""
    if not isinstance(b, complex) and not (isinstance(b, Tensor) and b.is_complex()):
        return ComplexTensor(*(regrouped(part / b, _MORE_BY_A_REAL) for part in parts(a)))
    re, im = _both(a)
    c, d = parts(product(torch.ones_like(parts(lifted(a))[0]), b) if isinstance(b, complex) else b)
    under = _term(c, c) + _term(d, d)
    if im is None:
        return ComplexTensor(_term(re, c) / under, -_term(re, d) / under)
    return ComplexTensor((_term(re, c) + _term(im, d)) / under, (_term(im, c) - _term(re, d)) / under)


def _both(value: Any) -> tuple[Any, Any]:
    """Return real and imaginary part of a number or tensor, None for that of a real one."""
    if isinstance(value, complex):
        return value.real, value.imag
    return parts(value) if isinstance(value, Tensor) and value.is_complex() else (value, None)


plus, minus = by_parts(operator.add), by_parts(operator.sub)


def _term(a: Any, b: Tensor) -> Tensor:
    result: Tensor = regrouped(a * b, _MORE_OF_A_TERM)
    return result


def reciprocal(value: Any) -> Any:
    """Return 1 / value."""
    return quotient(1.0, value)


def mean(value: Any, *args: Any, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """Return the sum over the number of terms, which PyTorch divides by as by a complex number."""
    total = torch.sum(value, *args, **options)
    return quotient(total, value.numel() // max(1, total.numel()))


def power(value: Any, exponent: Any) -> Any:
    """Small whole powers are products, as PyTorch has them; the others exp(exponent log(value))."""
    value = lifted(value)
    if isinstance(exponent, complex) and exponent.imag == 0:
        exponent = exponent.real
    if exponent in (0, 1, 2, -1):
        one = ComplexTensor(torch.ones_like(value.re), torch.zeros_like(value.im))
        return (one, value, product(value, value), reciprocal(value))[int(exponent)]  # the last for -1
    return torch.exp(product(torch.log(value), exponent))


def power_of(base: Any, exponent: Any) -> Any:
    """Return base^exponent of a number that is not zero."""
    return torch.exp(product(exponent, cmath.log(base)))


def sigmoid(value: Any) -> Any:
    """Return 1 / (1 + exp(-value))."""
    return reciprocal(1 + torch.exp(-value))


def atanh(value: Any) -> Any:
    """Return (log(1 + value) - log(1 - value)) / 2."""
    return product(torch.log(1 + value) - torch.log(1 - value), 0.5)


def atan(value: Any) -> Any:
    """Return -i atanh(i value)."""
    re, im = parts(atanh(ComplexTensor(-value.im, value.re)))
    return ComplexTensor(im, -re)


def asinh(value: Any) -> Any:
    """Return log(s z + sqrt(z^2 + 1)) s, where s is the sign of the real part: nothing cancels."""
    sign = torch.where(torch.signbit(value.re), -1.0, 1.0).to(value.re.dtype)
    turned = product(value, sign)
    return product(torch.log(turned + torch.sqrt(product(turned, turned) + 1)), sign)


def acosh(value: Any) -> Any:
    """Return log(z + sqrt(z + 1) sqrt(z - 1)); sqrt(z^2 - 1) is the other root in the left half of the plane."""
    return torch.log(value + product(torch.sqrt(value + 1), torch.sqrt(value - 1)))


def expm1(value: Any) -> Any:
    """Return the exponential less 1, where the real part e^x cos y - 1 is (e^x - 1) cos y - 2 sin^2(y / 2)."""
    half = torch.sin(value.im / 2)
    real = torch.expm1(value.re) * torch.cos(value.im) - 2 * half * half
    return ComplexTensor(real, torch.exp(value.re) * torch.sin(value.im))


def log1p(value: Any) -> Any:
    """Return the logarithm of 1 + z, near zero by half the real one of 1 + (x (x + 2) + y^2)."""
    x, y = value.re, value.im
    near = x * x + y * y < 0.25
    small = torch.where(near, x, 0.0), torch.where(near, y, 0.0)
    real = torch.log1p(small[0] * (small[0] + 2) + small[1] * small[1]) / 2
    return ComplexTensor(torch.where(near, real, torch.log(torch.hypot(1 + x, y))), torch.atan2(y, 1 + x))
