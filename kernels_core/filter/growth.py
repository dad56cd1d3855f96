"""The relative error that a sum of n terms grants to each of them, by the order that the profile declares.

With u of the accumulator and h additions on the longest path from a term to the sum:

    any, sequential   h = n - 1:                      h u, without a limit on n, in any order (Jeannerod, Rump)
    pairwise          h = ceil(log2 n):               (1 + u)^h - 1
    blocked:b         h = b - 1 + ceil(n / b) - 1:    (1 + u)^h - 1

(1 + u)^h - 1 is the elementary bound of h rounded additions of magnitudes: |s' - s| <= ((1 + u)^h - 1) sum |x|, since
each term passes h factors 1 + d, |d| <= u. A product is one rounding more; an accumulator narrower than the compute
format rounds each term once more as it is loaded. The smaller of h u and (n - 1) u holds in any case.

`sequential` has the height of `any`, but its terms come in the order of their index, so that the partial sums are
known: for sums, means and matrix products rules/sequential.py bounds their roundings, which for terms of both signs is
about sqrt(n) times less. Other sums (softmax, norms, convolutions, running sums) are granted what any order is.

Probabilistic (`bound: probabilistic`). Take the roundings d_1 ... d_h on one term's path as random with mean zero given
those before them, |d_i| <= u. Then with L = log((1 + d_1) ... (1 + d_h)), M_i = sum_{j<=i} (log(1 + d_j) - E_j) is a
martingale for E_j the conditional mean of log(1 + d_j). |d - log(1 + d)| <= d^2 / (1 - u) gives |E_j| <= u^2 / (1 - u),
and log(1 + d_j) lies in an interval of length log((1 + u) / (1 - u)) <= 2 u / (1 - u), so Azuma and Hoeffding give

    P(|M_h| > lambda sqrt(h) u / (1 - u)) <= 2 exp(-lambda^2 / 2)
    else  |(1 + d_1) ... (1 + d_h) - 1| <= exp((lambda sqrt(h) u + h u^2) / (1 - u)) - 1

(Hoeffding's bound for intervals of length l is 2 exp(-2 t^2 / (h l^2)); with l = 2 u / (1 - u) this is the line above.)
A union over all terms of all sums of a run makes the probability that any grant of the run is exceeded at most
2 exp(-lambda^2 / 2) times their number, which the report states. lambda is 10: 3.9e-22 for one term.
The form is that of Higham and Mary, SISC 41 (2019) A2815; the constants are those derived here.
"""

from __future__ import annotations

import math

from kernels_core.profiles import Profile

LAMBDA = 10.0
TERM_FAILS = 2 * math.exp(-(LAMBDA**2) / 2)


def height(profile: Profile, n: int) -> int:
    """Return the additions on the longest path of a sum of n terms."""
    if n < 2:
        return 0
    if profile.order == "pairwise":
        return (n - 1).bit_length()
    block = profile.height_block
    return min(n, block) - 1 + -(-n // block) - 1 if block else n - 1


def growth(profile: Profile, n: int, u: float, more: int = 0) -> float:
    """Return the relative error granted to each term of a sum of n terms, rounded `more` times besides."""
    paths = max(n - 1, 0) + more
    steps = height(profile, n) + more
    smallest = paths * u
    if steps < paths:
        smallest = min(smallest, _power(steps, u))
    if profile.probabilistic and steps:
        smallest = min(smallest, probable(steps, u))
    return smallest


def probable(steps: int, u: float, deviations: float = LAMBDA) -> float:
    """Return what h roundings exceed with probability at most 2 exp(-lambda^2 / 2)."""
    return math.expm1((deviations * math.sqrt(steps) * u + steps * u * u) / (1 - u))


def _power(steps: int, u: float) -> float:
    """Return (1 + u)^steps - 1, rounded upwards."""
    return math.expm1(steps * math.log1p(u)) * (1 + 2.0**-48)
