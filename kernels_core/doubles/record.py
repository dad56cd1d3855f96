"""What an ATen operation's double-double evaluation is given and returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from kernels_core.doubles.number import DoubleDouble, exactly, number
from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Local

Evaluation = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Call:
    """A step that is evaluated.

    Attributes:
        local: of the step.
        values: its results by the rule.
    """

    local: Local
    values: list[Enclosure]

    @property
    def value(self) -> Enclosure:
        """The first result by the rule."""
        return self.values[0]


@dataclasses.dataclass(frozen=True)
class Truth:
    """An integer or boolean result, and where it is not known whether this is the exact one (None for nowhere)."""

    value: torch.Tensor
    doubt: torch.Tensor | None


def fine(value: Any) -> DoubleDouble:
    """Return an operand as a number; integers and Python numbers up to 2^53 are exact, others unknown."""
    if not isinstance(value, Enclosure):
        held = number(float(value))
        return (
            held if float(value) == value or value != value else dataclasses.replace(held, rad=held.hi * 0 + torch.inf)
        )
    zero = torch.zeros((), dtype=torch.float64, device=value.mid.device)
    if value.floating:
        return DoubleDouble(
            value.mid, zero if value.low is None else value.low, zero if value.rad is None else value.rad
        )
    mid = value.mid.to(torch.float64)
    rad = zero if value.rad is None else value.rad
    if value.mid.dtype is torch.int64 and mid.numel() and float(mid.abs().amax()) > 2.0**53:
        rad = torch.full_like(mid, torch.inf)
    return dataclasses.replace(exactly(mid), rad=rad)


def doubtful(value: Any) -> torch.Tensor | None:
    """Return where an integer or boolean operand is not known."""
    return value.rad > 0 if isinstance(value, Enclosure) and value.rad is not None else None


def elementwise(function: Callable[..., DoubleDouble]) -> Evaluation:
    """Return the evaluation of a function of numbers alone."""
    return lambda call, *operands: function(*map(fine, operands))


def floating(call: Call, evaluate: Callable[[], DoubleDouble], *operands: Any) -> DoubleDouble | Truth:
    """Return the value of a floating result; an integer one is the rule's, unless an operand is not known."""
    if call.value.floating:
        return evaluate()
    doubts = [doubt for doubt in map(doubtful, operands) if doubt is not None]
    return Truth(call.value.mid, torch.ones((), dtype=torch.bool) if doubts else None)
