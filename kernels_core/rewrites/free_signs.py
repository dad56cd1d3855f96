"""Results that depend on the sign of an eigenvector or of a singular vector are unconstrained.

Such a vector may come with either sign. A program is evaluated with the signs that float64's own algorithm chose, which
stands for every choice where the results do not depend on it. That they do not is tried by runs that turn one vector
each, which show every product of signs; beyond eight vectors each of eight runs turns about half of them
(`arithmetic.Local.signs`). Where such a run's enclosure does not meet the first one, nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import DISCRETE, FREE_SIGNS


def without_free_signs(
    found: Mapping[str, Enclosure], vectors: int, turned: Callable[[int], Mapping[str, Enclosure]]
) -> dict[str, Enclosure]:
    """Return the results, unknown where they change with a sign.

    Args:
        found: results by name.
        vectors: number of vectors with a free sign that the program has.
        turned: evaluates the program with the vectors whose code has this bit turned.
    """
    kept = dict(found)
    for digit in range(min(vectors, FREE_SIGNS)):
        others = turned(1 << digit)
        kept = {name: _apart_unknown(value, others[name]) for name, value in kept.items()}
    return kept


def _apart_unknown(value: Enclosure, other: Enclosure) -> Enclosure:
    """Return the first enclosure, unknown where the second does not meet it."""
    if not value.floating:
        return value
    bound, more = value.bound_or_zero(), other.bound_or_zero()
    apart = ((value.mid - other.mid).abs() > (bound + more) * DISCRETE) | (value.mid.isfinite() != other.mid.isfinite())
    return Enclosure(value.mid, torch.where(apart, torch.inf, bound)) if bool(apart.any()) else value


def unknown_rads(
    rads: Mapping[str, torch.Tensor | float], found: Mapping[str, Enclosure]
) -> dict[str, torch.Tensor | float]:
    """Return rads that are infinite where the bound is: an exact value has signs of its own there."""
    return {n: torch.where(found[n].bound_or_zero().isinf(), torch.inf, rad) for n, rad in rads.items()}
