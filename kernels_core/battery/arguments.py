"""Numbers, flags, words and dimensions at another value than their default: a kernel may take and not look at them.

What nobody chose is tried at one other value, where kernel and reference have a parameter of the same name: a flag the
other way round, a small number (an epsilon) a thousand times as large, another one half as large again, a `reduction`
in each of its words, and a scale that is None, which stands for a number of the kernel's own, at a given number. A
dimension, chosen or not, is also counted from the other end, which asks for the same result. Other integers, such as a
number of groups, depend on the sizes and are not varied, nor are other words, nor None that may stand for anything:
the row says so.
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
# What None may stand for: a number that kernel and reference compute, or a constant of their own.
SCALES = {
    **dict.fromkeys(
        ("scale", "sm_scale", "softmax_scale", "attn_scale", "scaling", "scale_factor", "temperature"), 0.5
    ),
    **dict.fromkeys(("eps", "epsilon"), 1e-2),
}
SMALL = 1e-2  # a number below this is taken for an epsilon
MOST = 8  # other values that are run; each is a check of its own


def _arguments(subject: Subject) -> Finding:
    judgement, tried = Judgement(subject), other_values(subject)
    if not tried:
        return not_applicable("there are no numbers, flags, words or dimensions")
    varied: dict[str, bool] = dict.fromkeys(tried, False)
    for name, other in [(name, other) for name, others in tried.items() for other in others][:MOST]:
        varied[name] |= look_again(judgement, labelled(name, other), {**subject.inputs, name: other})
    rest = [name for name, done in varied.items() if not done]
    left_out = [f"not varied: {', '.join(rest)}"] if rest else []
    ran = [", ".join(judgement.done)] if judgement.done else []
    return judgement.finding("; ".join([*ran, *left_out]), noted=not ran)


def other_values(subject: Subject) -> dict[str, list[Any]]:
    """Return the other values to try of every plain argument, none for those that have none."""
    defaults = _defaults(subject)
    given = {n: v for n, v in subject.inputs.items() if _plain(v)}
    left = {n: v for n, v in defaults.items() if n not in subject.inputs}  # a tensor may stand in a None's place
    return {name: list(_others(subject, name, value, defaults)) for name, value in {**left, **given}.items()}


def labelled(name: str, value: Any) -> str:
    """Return "eps=0.01"."""
    return f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, PLAIN)


def _defaults(subject: Subject) -> dict[str, Any]:
    """Return the plain parameters with a default that kernel and reference share by name."""
    own, other = signature_or_none(subject.function), subject.check.reference.signature
    if own is None:
        return {}
    shared = [p for name, p in own.parameters.items() if name in other.parameters]
    return {p.name: p.default for p in shared if _plain(p.default)}


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
    elif value is None and not chosen:
        yield from [SCALES[name]] if name in SCALES else []
    elif isinstance(value, float) and not chosen:
        yield value * 1000 if 0 < abs(value) < SMALL else value * 1.5 or 0.5


def _dimensions(value: int, rank: int, *, chosen: bool) -> Iterator[int]:
    yield from (value + shift for shift in (rank, -rank) if rank and -rank <= value + shift < rank)
    if not chosen:
        yield from (dim for dim in range(rank) if dim not in (value, value + rank))


ITEMS = (Item("arguments", "numbers, flags, words and dimensions at another value than their default", _arguments),)
