"""Further sizes for the battery, where the user left them free: 0, 1, neighbours of the chosen size, a prime.

Where several are free, once they are all equal: a kernel that tells axes apart by their lengths is wrong there.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from exactref_cli.inputs import Drawn, GroupInput, Input, PlainInput, TensorInput, each, flat
from kernels_core.battery import Size
from kernels_core.battery.sizes import MOST, interesting

Change = TypeVar("Change", dict[str, int], dict[int, int])


def of_names(sizes: Mapping[str, int], make: Callable[[Mapping[str, int]], Callable[[], Drawn]]) -> tuple[Size, ...]:
    """Return the sizes to try in place of named ones.

    Args:
        sizes: name to the chosen size, of those that are free.
        make: returns what makes the inputs with other sizes of these names.
    """
    changes = [{name: size} for name, size in _in_turn(sizes)]
    if (size := _shared(sizes.values())) is not None:
        changes = _placed(changes, dict.fromkeys(sizes, size), len(sizes))
    return tuple(Size(_named(change), functools.partial(_pair, make(change))) for change in changes)


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
    changes = [{int(old): new} for old, new in _in_turn({str(size): size for size in sorted(open_, reverse=True)})]
    if (size := _shared(open_)) is not None:
        changes = _placed(changes, {old: size for old in sorted(open_, reverse=True) if old != size}, len(open_))
    return tuple(
        Size(_replaced(change), functools.partial(_pair, functools.partial(draw, _resized(chosen, names, change))))
        for change in changes
    )


def _named(change: Mapping[str, int]) -> str:
    """Return "M=1", or "M=N=8" for several that become equal."""
    return f"{'='.join(change)}={next(iter(change.values()))}"


def _replaced(change: Mapping[int, int]) -> str:
    """Return "1 for 16", or "8 for 32 and 16" for several that become equal."""
    return f"{next(iter(change.values()))} for {' and '.join(map(str, change))}"


def _shared(sizes: Collection[int]) -> int | None:
    """Return the size that all may have: the smallest that is not 1; None where all are equal, or too small."""
    return min((size for size in sizes if size > 1), default=None) if len(set(sizes)) > 1 else None


def _placed(changes: list[Change], equal: Change, names: int) -> list[Change]:
    """Return the changes with that to equal sizes among the first that are run, in the place of the last one."""
    placed = changes[:-1]
    placed.insert(min(names, MOST - 1), equal)
    return placed


def _in_turn(sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (name, other size), the first for every name before the second for any: the battery runs the first few."""
    columns = ([(name, other) for other in interesting(size)] for name, size in sizes.items())
    for row in itertools.zip_longest(*columns):
        yield from (pair for pair in row if pair is not None)


def _resized(chosen: Sequence[Input], names: set[str], change: Mapping[int, int]) -> list[Input]:
    def resize(one: TensorInput | PlainInput) -> TensorInput | PlainInput:
        if not isinstance(one, TensorInput) or one.name not in names:
            return one
        return dataclasses.replace(one, shape=tuple(change.get(size, size) for size in one.shape))

    return [GroupInput(one.name, each(one, resize)) if isinstance(one, GroupInput) else resize(one) for one in chosen]


def _pair(make: Callable[[], Drawn]) -> tuple[Mapping[str, Any], Sequence[str] | None]:
    drawn = make()
    return drawn.values, drawn.wrt
