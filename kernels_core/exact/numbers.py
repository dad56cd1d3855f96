"""Exact numbers for the exact tier: rationals (`fmpq`) where everything is rational, balls (`arb`) where it is not.

Arrays are numpy object arrays. Integers and booleans of the program are Python ints and bools in both systems.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import flint
import numpy as np

Objects = Any  # numpy array of dtype object


class NotRationalError(Exception):
    """The cone has an operation without a rational value: balls are needed."""


class NotSeparatedError(Exception):
    """Two balls overlap where an order is needed: more precision is needed, or the values tie."""


class Numbers:
    """Arithmetic of one attempt: rational, or balls of `precision` bits."""

    def __init__(self, precision: int | None) -> None:
        """Take rationals for None, else balls."""
        self.precision = precision

    @property
    def rational(self) -> bool:
        """True for rationals."""
        return self.precision is None

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Set FLINT's working precision for the duration."""
        before = flint.ctx.prec
        flint.ctx.prec = self.precision or before
        try:
            yield
        finally:
            flint.ctx.prec = before

    def of(self, value: float | int | bool) -> Any:
        """Return a Python number as an exact one (ints and bools stay)."""
        if isinstance(value, (bool, int, np.integer, np.bool_)):
            return value.item() if isinstance(value, (np.integer, np.bool_)) else value
        if not self.rational:
            return flint.arb(float(value))
        if value != value or value in (float("inf"), float("-inf")):
            raise NotRationalError
        return flint.fmpq(*float(value).as_integer_ratio())

    def array(self, values: np.ndarray) -> Objects:
        """Return a numpy array of float64, integers or booleans as exact numbers."""
        found = np.empty(values.shape, dtype=object)
        found.reshape(-1)[:] = [self.of(v) for v in values.reshape(-1).tolist()]
        return found

    def each(self, function: Callable[..., Any], *arrays: Any) -> Objects:
        """Apply a function of scalars elementwise, broadcasting."""
        return np.frompyfunc(function, len(arrays), 1)(*arrays)

    def real(self, value: Any) -> Any:
        """Return an int or bool as a number of this system, others unchanged."""
        if isinstance(value, (int, bool)):
            return flint.fmpq(int(value)) if self.rational else flint.arb(int(value))
        return value

    def ball(self, function: Callable[..., Any], *arrays: Any) -> Objects:
        """Apply a function that exists for balls only, such as `flint.arb.exp`."""
        if self.rational:
            raise NotRationalError
        return self.each(lambda *values: _of_numbers(function, [self.real(v) for v in values]), *arrays)

    def divide(self, a: Any, b: Any) -> Objects:
        """Return a / b; division by an exact zero needs balls, where it is not finite."""

        def quotient(x: Any, y: Any) -> Any:
            if self.rational and y == 0:
                raise NotRationalError
            return self.real(x) / self.real(y)

        return self.each(quotient, a, b)

    def sqrt(self, a: Any) -> Objects:
        """Return the square root; rational where the radicand is a square."""

        def root(x: Any) -> Any:
            if not self.rational:
                return self.real(x).sqrt()
            x = flint.fmpq(x)
            if x < 0:
                raise NotRationalError
            top, bottom = x.p.isqrt(), x.q.isqrt()
            if top * top != x.p or bottom * bottom != x.q:
                raise NotRationalError
            return flint.fmpq(top, bottom)

        return self.each(root, a)

    def sign(self, value: Any) -> int:
        """Return -1, 0 or 1.

        Raises:
            NotSeparatedError: the ball contains zero and more.
        """
        if value > 0:
            return 1
        if value < 0:
            return -1
        if value == 0:
            return 0
        raise NotSeparatedError

    def is_nan(self, value: Any) -> bool:
        """Return True for NaN."""
        return _is_nan(value)

    def less(self, a: Any, b: Any) -> bool:
        """Return a < b, decided (NaN compares false); a value is not below itself, which no ball can tell."""
        if a < b:
            return True
        if a is b or a >= b or _is_nan(a) or _is_nan(b):
            return False
        raise NotSeparatedError

    def equal(self, a: Any, b: Any) -> bool:
        """Return a == b, decided (NaN is equal to nothing); a value is equal to itself, which no ball can tell."""
        if a == b or (a is b and not _is_nan(a)):
            return True
        if a < b or a > b or _is_nan(a) or _is_nan(b):
            return False
        raise NotSeparatedError

    def maximum(self, a: Any, b: Any) -> Any:
        """Return the larger of two; overlapping balls give the ball that contains both candidates."""
        if _is_nan(a) or _is_nan(b):
            return a if _is_nan(a) else b
        if not self.rational and isinstance(self.real(a), flint.arb):
            return self.real(a).max(self.real(b))
        return b if a < b else a

    def minimum(self, a: Any, b: Any) -> Any:
        """Return the smaller of two, as `maximum`."""
        if _is_nan(a) or _is_nan(b):
            return a if _is_nan(a) else b
        if not self.rational and isinstance(self.real(a), flint.arb):
            return self.real(a).min(self.real(b))
        return a if a < b else b

    def kind(self, value: Any) -> str:
        """Return "finite", "infinite" or "nan".

        Raises:
            NotSeparatedError: the ball is too wide to tell.
        """
        value = self.real(value)
        if self.rational or value.is_finite():
            return "finite"
        if value == flint.arb.pos_inf() or value == flint.arb.neg_inf():
            return "infinite"
        if value.is_nan():
            return "nan"
        raise NotSeparatedError

    def floor(self, value: Any) -> int:
        """Return the largest integer below, as a Python int."""
        value = self.real(value)
        if self.rational:
            return int(value.p // value.q)
        found = value.floor().unique_fmpz()
        if found is None:
            raise NotSeparatedError
        return int(found)

    def ceil(self, value: Any) -> int:
        """Return the smallest integer above, as a Python int."""
        return -self.floor(-self.real(value))

    def trunc(self, value: Any) -> int:
        """Return the integer part, as a Python int."""
        value = self.real(value)
        return self.floor(value) if self.sign(value) >= 0 else self.ceil(value)


def _of_numbers(function: Callable[..., Any], values: list[Any]) -> Any:
    """Return function(*values), NaN where one is NaN: FLINT makes an interval of asin(NaN) and atan2(NaN, x)."""
    missing = next((v for v in values if _is_nan(v)), None)
    return function(*values) if missing is None else missing


def _is_nan(value: Any) -> bool:
    return isinstance(value, flint.arb) and value.is_nan()
