"""The shape of a rule: what one ATen operation does to bounds, which elements it needs, and its exact value.

A rule has three parts, side by side. A missing part fails at import, because the record has no defaults for them:

    bound(local, *args, **kwargs)     the filter: arguments of the operation with tensors as Enclosures, result the same
    cone(call)                        for the requested elements, which elements of each tensor operand are needed
    exact(call, *operands)            their exact values from those of the operands (object arrays of FLINT numbers)

`tiles` says how far the rule may be evaluated piece by piece: the number of leading dimensions of its result along
which it acts independently. A rule is a pure function of its operands' tiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels_core.program import Step


def never_tiled(step: Step) -> int:
    """Return 0: the operation must see its operands whole."""
    return 0


@dataclasses.dataclass(frozen=True)
class Rule:
    """One operation.

    Attributes:
        name: ATen name with overload, "aten.mul.Tensor".
        bound, cone, exact: see the module.
        tiles: leading dimensions along which the operation acts independently; 0 for none.
        aligned: "right" where operands broadcast against the result (elementwise), "left" where the operand's leading
            dimensions are the result's (reductions over trailing dimensions, softmax).
        keeps_inf: a certain infinity in one operand makes the result certainly infinite or NaN whatever finite
            value the others take (sums).
        scales_inf: a certain infinity in one operand makes the result the infinity that float64 returned where the
            signs of all operands are certain and none is zero (products).
        poles: an infinity from finite operands is the exact limit (1/0), not an overflow.
        partial: for sums over leading dimensions: `bound` of one tile's part, before it is stored. The parts of all
            tiles are added up and given to `finish(local, total)`, so that the operand need not be materialised.
        finish: see `partial`.
        classed: the rule gives infinities and NaN their class itself, bounds are never NaN.
    """

    name: str
    bound: Callable[..., Any]
    cone: Callable[..., Any]
    exact: Callable[..., Any]
    tiles: Callable[[Step], int] = never_tiled
    aligned: str = "right"
    keeps_inf: bool = False
    scales_inf: bool = False
    poles: bool = False
    classed: bool = False
    partial: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None


class Family(Mapping[str, Rule]):
    """The rules of one file, registered explicitly and by full name; a second rule of the same name is refused."""

    def __init__(self) -> None:
        """Start empty."""
        self._rules: dict[str, Rule] = {}

    def add(self, *rules: Rule) -> None:
        """Register rules."""
        for rule in rules:
            if rule.name in self._rules:
                raise ValueError(f"two rules for {rule.name}")
            self._rules[rule.name] = rule

    def __getitem__(self, name: str) -> Rule:
        """Return the rule called `name`."""
        return self._rules[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._rules)

    def __len__(self) -> int:
        """Return the number of rules."""
        return len(self._rules)
