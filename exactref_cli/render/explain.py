"""What a case will do, on the screen and as JSON."""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactref_cli.explain import Explanation, Tensor
from exactref_cli.render.console import count, put, room, sizes
from exactref_cli.render.json import plain
from exactref_cli.run import Case
from kernels_core.battery import COST_LIMIT, FREE_SECONDS
from kernels_core.explain.granted import Granted
from kernels_core.profiles import AUTO, Profile, resolve

INDENT = 2
SHOWN = 8  # operations of one result
_KINKS = {
    "accept": "any element of the subdifferential is accepted",
    "convention": "PyTorch's own gradient is insisted on",
}


def show(console: Console, found: Sequence[Explanation]) -> None:
    """Print every explanation."""
    for explanation in found:
        console.print(Text(explanation.case.name, style="bold"))
        put(console, _facts(console, _heading(explanation)), INDENT)
        console.print()
        put(console, _contract(console, explanation.tensors), INDENT)
        console.print()
        put(console, _facts(console, _closing(explanation)), INDENT)
        console.print()
    console.print(Text(summary(found)))


def summary(found: Sequence[Explanation]) -> str:
    """Return "3 cases; no kernel was called; about 0.4 s, without their batteries"."""
    costs = [one.cost.seconds for one in found if one.cost is not None]
    about = f"; about {_seconds(sum(costs))}" if costs else ""
    apart = ", batteries not counted" if about and any(one.items for one in found) else ""
    return f"{count(len(found), 'case')}; no kernel was called{about}{apart}"


def _heading(found: Explanation) -> Iterator[tuple[str, str]]:
    case = found.case
    yield "kernel", f"{case.function_text}, on {case.device}"
    yield "reference", _reference(found)
    if case.reference_backward_text:
        what = "its own values are the gradients" if case.surrogate else "its roundings are granted to the gradients"
        yield "backward", f"{case.reference_backward_text}, declared: {what}"
    profile = _profile(case)
    yield "profile", f"{profile.title}: {profile.grants}"
    if case.bound is not None:
        yield "bound", case.bound
    yield "kinks", f"{case.kinks}: {_KINKS[case.kinks]}"
    yield "seed", f"{case.seed}, of inputs and upstream gradients"
    if found.plain:
        yield "values", ", ".join(f"{name}={value!r}" for name, value in found.plain.items())
    if case.expect != "covered":
        yield "expected", f"{case.expect}: a known fault, which must stay caught"
    if case.require_sensitivity is not None:
        yield "required", f"inputs that would show a result rounded to {case.require_sensitivity}"


def _profile(case: Case) -> Profile:
    """Return the arithmetic of a case, that of its device where nobody names one."""
    return resolve(AUTO if case.profile is None else case.profile, device=torch.device(case.device))


def _reference(found: Explanation) -> str:
    if found.case.reference_text:
        return f"{found.case.reference_text}; the gradients are PyTorch's derivative of it"
    return "the kernel's own forward, so that only its gradients are checked"


def _contract(console: Console, tensors: Sequence[Tensor]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", width=room(console) - INDENT)
    for name in ("tensor", "shape", "dtype"):
        table.add_column(name, no_wrap=True)
    table.add_column("made of, or granted", ratio=1, overflow="fold")
    for one in tensors:
        table.add_row(one.name, sizes(one.shape), one.dtype, _words(one))
    return table


def _words(one: Tensor) -> str:
    if one.role == "input":
        return one.values + ("; its gradient is checked" if one.differentiated else "")
    return "zero: nothing depends on it" if one.granted is None else granted_words(one.granted)


def granted_words(found: Granted) -> str:
    """Return "mm; sums of 32 terms in any order; rounded to float32, bfloat16 (kernels.py:12)"."""
    names = [name if number == 1 else f"{number} {name}" for name, number in found.operations.items()]
    more = [f"{len(names) - SHOWN} others"] if len(names) > SHOWN else []
    parts = [", ".join([*names[:SHOWN], *more])] if names else ["moved only"]
    if found.longest_sum > 1:
        parts.append(f"sums of up to {found.longest_sum} terms in any order")
    rounded = [f"{count(number, 'rounding')} to {dtype}" for dtype, number in found.roundings.items()]
    parts += [", ".join(rounded)] * bool(rounded)
    places = dict.fromkeys(f"to {dtype} at {place}" for dtype, where in found.casts if (place := _place(where)))
    parts += [f"casts {', '.join(places)}"] * bool(places)
    return "; ".join(parts)


def _place(where: str) -> str:
    """Return a place in the user's own files as short as it gets, "" for one inside of a package."""
    near = os.path.relpath(where) if where else ""
    return "" if "site-packages" in where else where if near.startswith("..") else near


def _closing(found: Explanation) -> Iterator[tuple[str, str]]:
    yield from _battery(found)
    if found.problem:
        lines = found.problem.splitlines()
        yield "not told", "; ".join(lines) + "; the run itself traces it on values"
    if found.cost is not None:
        words = f"about {_seconds(found.cost.seconds)} and {_bytes(found.cost.bytes)} for the plain comparison"
        more = f"; the battery stops after {COST_LIMIT:.0f} times that, or {FREE_SECONDS:.0f} s" if found.items else ""
        yield "cost", words + more


def _battery(found: Explanation) -> Iterator[tuple[str, str]]:
    if not found.items:
        yield "battery", "none: values and gradients of one call only"
        return
    kinds = collections.defaultdict[str, list[str]](list)
    for name in found.items:
        kinds["families" if name.startswith("values_") else "battery"].append(name.removeprefix("values_"))
    for kind, names in kinds.items():
        yield kind, ", ".join(names) + _families_of(found) * (kind == "families")
    if found.case.sizes and "sizes" in found.items:
        yield "sizes", ", ".join(size.label for size in found.case.sizes)


def _families_of(found: Explanation) -> str:
    return f"; drawn for {', '.join(found.case.free)}" if found.case.free else "; none is drawn, every value is given"


def _facts(console: Console, facts: Iterator[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False, width=room(console) - INDENT)
    table.add_column(no_wrap=True, width=9)
    table.add_column(ratio=1, overflow="fold")
    for name, text in facts:
        table.add_row(name, text)
    return table


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.1g} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _bytes(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.2g} {unit}"
    return f"{number} bytes"


def as_json(found: Sequence[Explanation]) -> str:
    """Return every explanation as JSON."""
    whole = {"version": 1, "summary": summary(found), "cases": [_plain(one) for one in found]}
    return json.dumps(whole, indent=2, allow_nan=False)


def _plain(found: Explanation) -> dict[str, Any]:
    case = found.case
    kept = ("name", "device", "profile", "kinks", "seed", "surrogate", "expect", "require_sensitivity")
    whole: dict[str, Any] = {key: getattr(case, key) for key in kept}
    whole |= {key: getattr(case, f"{key}_text") for key in ("function", "reference", "reference_backward")}
    whole["profile"] = _profile(case).title
    whole |= {"tensors": found.tensors, "plain": found.plain, "cost": found.cost, "problem": found.problem}
    whole |= {"battery": found.items, "sizes": [size.label for size in case.sizes]}
    return {key: plain(value) for key, value in whole.items()}
