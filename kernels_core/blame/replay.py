"""A program run step by step in float64: with its real-number meaning, or with the rounding of each step's format.

Without rounding every cast is the identity and every step is exact up to float64. With rounding each step is evaluated
in float64 and its result rounded once to its format: what the kernel did, but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from kernels_core.formats import format_of, round_to_nearest
from kernels_core.program import Program, Ref, Step, replace_refs

Tensor = torch.Tensor
Values = dict[Ref, Tensor]
Replacement = Tensor | Callable[[Mapping[Ref, Tensor]], Tensor]

# The only thing that these say is in which format they compute: in float64 there is one way.
_WITHOUT_FORMAT = {"aten._softmax.default": 2, "aten._log_softmax.default": 2}


class CannotReplayError(Exception):
    """A step has no meaning in float64, such as a view of bits."""


def leaves(program: Program, inputs: Mapping[str, Tensor]) -> Values:
    """Return the values that a replay starts from."""
    given = {Ref(number): inputs[name] for name, number in program.inputs.items()}
    given.update({Ref(number): tensor for number, tensor in program.constants.items()})
    return {ref: _wide(value) for ref, value in given.items()}


def replay(program: Program, start: Values, *, rounded: bool, exempt: Collection[int] = ()) -> Values:
    """Return the value of every step.

    Args:
        program: the program.
        start: see `leaves`.
        rounded: round every floating result to the format of its step.
        exempt: numbers of the steps that are not rounded.
    """
    values = dict(start)
    for step in program.steps:
        if step.op is not None:
            put(values, step, evaluate(step, values), rounded and step.number not in exempt)
    return values


def changed(
    program: Program, values: Values, replacement: Mapping[Ref, Replacement], wanted: Collection[Ref], *, rounded: bool
) -> Values:
    """Return the wanted values after some results are replaced: what depends on them is computed again.

    A replacement that is a function takes the values of all steps before its own, as they then are.
    """
    new: Values = {ref: value for ref, value in replacement.items() if isinstance(value, Tensor)}
    later = {ref.step: (ref, value) for ref, value in replacement.items() if not isinstance(value, Tensor)}
    for step in program.steps:
        if step.number in later:
            ref, value = later[step.number]
            new[ref] = value(_Overlaid(new, values))
        elif step.op is None or not any(ref in new for ref in step.operands):
            continue
        elif Ref(step.number) not in replacement:
            put(new, step, evaluate(step, _Overlaid(new, values)), rounded)
    return {ref: new.get(ref, values[ref]) for ref in wanted}


class _Overlaid(dict[Ref, Tensor]):
    def __init__(self, first: Values, second: Values) -> None:
        super().__init__()
        self.first, self.second = first, second

    def __getitem__(self, ref: Ref) -> Tensor:
        return self.first[ref] if ref in self.first else self.second[ref]


def evaluate(step: Step, values: Mapping[Ref, Tensor]) -> list[Any]:
    """Return the results of one step on float64 operands.

    Raises:
        CannotReplayError: the operation refuses float64, or works on bits.
    """
    if step.op is None or step.name == "aten.view.dtype":
        raise CannotReplayError(step.name)
    args = list(replace_refs(step.args, values.__getitem__))
    if step.name in _WITHOUT_FORMAT:
        args[_WITHOUT_FORMAT[step.name]] = False
    try:
        result = step.op(*(_wide(a) for a in args), **{k: _wide(v) for k, v in _named(step, values).items()})
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise CannotReplayError(f"{step.name}: {error}") from error
    return list(result) if isinstance(result, (tuple, list)) else [result]


def put(values: Values, step: Step, results: list[Any], rounded: bool) -> None:
    """Store the results of a step, rounded to their formats where asked."""
    for output, result in enumerate(results):
        meta = step.metas[output] if output < len(step.metas) else None
        if isinstance(result, Tensor) and meta is not None:
            floating = result.is_floating_point() and meta.dtype.is_floating_point
            wide = _wide(result)
            values[Ref(step.number, output)] = (
                round_to_nearest(wide, format_of(meta.dtype)) if rounded and floating else wide
            )


def _named(step: Step, values: Mapping[Ref, Tensor]) -> dict[str, Any]:
    found: dict[str, Any] = replace_refs(dict(step.kwargs), values.__getitem__)
    return found


def _wide(value: Any) -> Any:
    """Return floating tensors and floating dtypes as float64, anything else as it is."""
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    return value.to(torch.float64) if isinstance(value, Tensor) and value.is_floating_point() else value
