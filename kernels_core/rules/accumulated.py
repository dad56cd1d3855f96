"""A sum of n tensors, element by element and in any order, each addition rounded to the format of the result.

With X_i the bounds of the terms and f the relative error of one addition (u, or that of a 16-bit addition, which
computes in float32 first), every term passes at most n - 1 additions:

    |s' - s| <= sum X_i + ((1 + f)^(n-1) - 1) sum (|x_i| + X_i),    (1 + f)^(n-1) - 1 <= (n - 1) f (1 + (n - 1) f)

for (n - 1) f <= 1. Sums of values of one format do not underflow.

Source: Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import broadcast_cone, elementwise_exact, elementwise_tiles
from kernels_core.rules.record import Family, Rule


def accumulated(local: Local, *terms: Enclosure) -> Enclosure:
    """Return the enclosure of the sum."""
    growth = (len(terms) - 1) * local.factor()
    growth *= 1 + growth
    mid = terms[0].mid
    bound = mid.abs() * growth
    for place, term in enumerate(terms):
        if place:
            mid = mid + term.mid
            bound = torch.add(bound, term.mid.abs(), alpha=growth)
        if term.bound is not None:
            bound = torch.add(bound, term.bound, alpha=1 + growth)
    return Enclosure(mid, bound * (INFLATE * (1 + len(terms) * 2.0**-50)))


def total(*terms: Any) -> Any:
    """Return the sum of tensors or of exact numbers, one after the other."""
    return functools.reduce(operator.add, terms)


FAMILY = Family()
FAMILY.add(
    Rule("exactref.accumulated", accumulated, broadcast_cone,
         elementwise_exact(lambda numbers, *terms: total(*terms)), elementwise_tiles, keeps_inf=True),
)  # fmt: skip
