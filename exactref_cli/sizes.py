"""Further sizes for the battery, where the user left them free: 0, 1, neighbours of the chosen size, a prime."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from exactref_cli.inputs import Drawn, GroupInput, Input, PlainInput, TensorInput, each, flat
from kernels_core.battery import Size
from kernels_core.battery.sizes import interesting


def of_names(sizes: Mapping[str, int], make: Callable[[str, int], Callable[[], Drawn]]) -> tuple[Size, ...]:
    """Return the sizes to try in place of named ones.

    Args:
        sizes: name to the chosen size, of those that are free.
        make: returns what makes the inputs with another size of that name.
    """
    return tuple(Size(f"{name}={size}", functools.partial(_pair, make(name, size))) for name, size in _in_turn(sizes))


def of_inputs(
    chosen: Sequence[Input], free: Iterable[str], draw: Callable[[Sequence[Input]], Drawn]
) -> tuple[Size, ...]:
    """Return the sizes to try in place of those that were found by trial.

    Equal sizes change together: they were one letter of a template, or cannot be told from one.

    Args:
        chosen: all inputs.
        free: names of those whose shapes nobody gave.
        draw: draws inputs.
    """
    names, leaves = set(free), [one for group in chosen for one in flat(group)]
    given = {size for one in leaves if isinstance(one, TensorInput) and one.name not in names for size in one.shape}
    open_ = {size for one in leaves if isinstance(one, TensorInput) and one.name in names for size in one.shape} - given
    return tuple(
        Size(
            f"{new} for {old}",
            functools.partial(_pair, functools.partial(draw, _resized(chosen, names, int(old), new))),
        )
        for old, new in _in_turn({str(size): size for size in sorted(open_, reverse=True)})
    )


def _in_turn(sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (name, other size), the first for every name before the second for any: the battery runs the first few."""
    columns = ([(name, other) for other in interesting(size)] for name, size in sizes.items())
    for row in itertools.zip_longest(*columns):
        yield from (pair for pair in row if pair is not None)


def _resized(chosen: Sequence[Input], names: set[str], old: int, new: int) -> list[Input]:
    def resize(one: TensorInput | PlainInput) -> TensorInput | PlainInput:
        if not isinstance(one, TensorInput) or one.name not in names:
            return one
        return dataclasses.replace(one, shape=tuple(new if size == old else size for size in one.shape))

    return [GroupInput(one.name, each(one, resize)) if isinstance(one, GroupInput) else resize(one) for one in chosen]


def _pair(make: Callable[[], Drawn]) -> tuple[Mapping[str, Any], Sequence[str] | None]:
    drawn = make()
    return drawn.values, drawn.wrt
