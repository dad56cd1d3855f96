"""One assumption with what was measured of it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What was measured of one assumption.

    Attributes:
        kind: "arithmetic", "sum", "product" or "function".
        name: "rounds to nearest even", "exp".
        worst: the largest error that was seen, in `unit`; inf where the assumption is broken in another way.
        limit: the largest that the filter takes for granted.
        unit: "ulp", or "" for a ratio; of kind "arithmetic" there is no number, 0 where it holds and inf where not.
        where: the arguments of the worst error.
        tried: how many values were looked at.
    """

    kind: str
    name: str
    worst: float
    limit: float
    unit: str
    where: str
    tried: int

    @property
    def holds(self) -> bool:
        """True where nothing beyond the limit was seen."""
        return self.worst <= self.limit
