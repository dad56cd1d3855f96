"""Numbers, flags, words and dimensions at another value than their default: a kernel may take and not look at them.

What nobody chose is tried at one other value, where kernel and reference have a parameter of the same name: a flag the
other way round, a small number (an epsilon) a thousand times as large, another one half as large again, a `reduction`
in each of its words. A dimension, chosen or not, is also counted from the other end, which asks for the same result.
Other integers, such as a number of groups, depend on the sizes and are not varied, nor are other words: the row says
so.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.other_inputs import look_again
from kernels_core.battery.subject import Subject
from kernels_core.kernel.callee import signature_or_none

PLAIN = (bool, int, float, str)
DIMENSIONS = ("dim", "axis")
WORDS = {"reduction": ("mean", "sum", "none"), "approximate": ("none", "tanh")}  # as PyTorch's own functions spell them
SMALL = 1e-2  # a number below this is taken for an epsilon
MOST = 8  # other values that are run; each is a check of its own


def _arguments(subject: Subject) -> Finding:
    defaults, judgement = _defaults(subject), Judgement(subject)
    plain = {n: v for n, v in subject.inputs.items() if isinstance(v, PLAIN)}
    values = {**defaults, **plain}
    if not values:
        return not_applicable("there are no numbers, flags, words or dimensions")
    varied: dict[str, bool] = dict.fromkeys(values, False)
    tried = [(name, other) for name, value in values.items() for other in _others(subject, name, value, defaults)]
    for name, other in tried[:MOST]:
        label = f"{name}={other:.6g}" if isinstance(other, float) else f"{name}={other}"
        varied[name] |= look_again(judgement, label, {**subject.inputs, name: other})
    rest = [name for name, done in varied.items() if not done]
    left_out = [f"not varied: {', '.join(rest)}"] if rest else []
    ran = [", ".join(judgement.done)] if judgement.done else []
    return judgement.finding("; ".join([*ran, *left_out]), noted=not ran)


def _defaults(subject: Subject) -> dict[str, Any]:
    """Return the plain parameters with a default that kernel and reference share by name."""
    own, other = signature_or_none(subject.function), subject.check.reference.signature
    if own is None:
        return {}
    shared = [p for name, p in own.parameters.items() if name in other.parameters]
    return {p.name: p.default for p in shared if isinstance(p.default, PLAIN)}


def _others(subject: Subject, name: str, value: Any, defaults: Mapping[str, Any]) -> Iterator[Any]:
    """Yield other values to try: a value that somebody chose keeps its meaning."""
    chosen = subject.inputs.get(name, value) != defaults.get(name, inspect.Parameter.empty)
    if name in DIMENSIONS and isinstance(value, int) and not isinstance(value, bool):
        rank = next((t.dim() for t in subject.check.tensors.values()), 0)
        yield from _dimensions(value, rank, chosen=chosen)
    elif isinstance(value, bool) and not chosen:
        yield not value
    elif isinstance(value, str) and not chosen:
        yield from (word for word in WORDS.get(name, ()) if word != value)
    elif isinstance(value, float) and not chosen:
        yield value * 1000 if 0 < abs(value) < SMALL else value * 1.5 or 0.5


def _dimensions(value: int, rank: int, *, chosen: bool) -> Iterator[int]:
    yield from (value + shift for shift in (rank, -rank) if rank and -rank <= value + shift < rank)
    if not chosen:
        yield from (dim for dim in range(rank) if dim not in (value, value + rank))


ITEMS = (Item("arguments", "numbers, flags, words and dimensions at another value than their default", _arguments),)
