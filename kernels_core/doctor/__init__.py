"""What the filter assumes of this machine's floating point, measured: `exactref doctor`.

Every assumption of docs/design.md ("What we assume about floating point") is a `Measurement` here: the worst value that
was seen, where, and the limit that the filter takes for granted. `environment.py` also has the test that every check
makes before it evaluates anything.
"""

from __future__ import annotations

from kernels_core.doctor import environment, functions, products, transforms
from kernels_core.doctor.measurement import Measurement

__all__ = ["Measurement", "examine"]


def examine(points: int = 2000, seed: int = 0) -> list[Measurement]:
    """Return every measurement: the arithmetic itself, sums and products, elementary functions.

    Args:
        points: random arguments per function, on top of the hard ones.
        seed: of random arguments.
    """
    return [
        *environment.measured(),
        *transforms.measured(seed),
        *products.measured(seed),
        *functions.measured(points, seed),
    ]
