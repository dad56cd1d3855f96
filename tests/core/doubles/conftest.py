"""FLINT's precision for the tests of double-double numbers."""

from __future__ import annotations

from collections.abc import Iterator

import flint
import pytest


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    """Compute at 200 bits beyond the range of float64, so that sums of any two numbers are exact."""
    before = flint.ctx.prec
    flint.ctx.prec = 2300
    yield
    flint.ctx.prec = before
