"""Families of values: the plain comparison again, with inputs that show what friendly numbers hide.

Only inputs that nobody gave values for are drawn anew; where a function or a Python program gave all of them, numbers
within their range. Whether a kernel can be held to the intervals there is the
business of `extremes.py`. What the bounds cannot is said and never counted as covered.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

import torch

from kernels_core.battery import thresholds
from kernels_core.battery.comparable import comparable, finite_range
from kernels_core.battery.extremes import Extremes
from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.subject import Subject
from kernels_core.inputs import families
from kernels_core.tracing.complex_parts import differentiable, parts_of

Tensor = torch.Tensor
Draw = Callable[[Tensor], Tensor]
SEED = 0xFA3117
MOST = 3  # draws of one family
_SCORES = ("aten._softmax.default", "aten._log_softmax.default", "aten.logsumexp.default")


def _family(*names: str) -> Callable[[Subject], Finding]:
    """Return an item that draws from each family in turn."""

    def run(subject: Subject) -> Finding:
        generator = _generator(subject)
        draws = [functools.partial(_draw, name, generator) for name in names]
        return _judged(subject, [(name.replace("_", " "), draw) for name, draw in zip(names, draws, strict=True)])

    return run


def _draw(name: str, generator: torch.Generator, like: Tensor) -> Tensor:
    return families.draw(name, tuple(like.shape), generator, like.dtype)


def _generator(subject: Subject) -> torch.Generator:
    return torch.Generator().manual_seed(SEED + subject.settings.seed)


def _masked(subject: Subject) -> Finding:
    if not any(step.name in _SCORES for step in subject.check.forward.steps):
        return not_applicable("nothing is masked without a softmax")
    return _family("masked")(subject)


def _subnormals(subject: Subject) -> Finding:
    if subject.check.profile.name != "ieee":
        return not_applicable(f"the profile {subject.check.profile.name} may flush subnormals")
    return _family("subnormals")(subject)


def _thresholds(subject: Subject) -> Finding:
    """Put every constant on both sides of some element, in as many draws as that takes."""
    own = [*thresholds.of_program(subject.check.forward), *thresholds.of_program(subject.check.joint)]
    constants = [*own, *thresholds.of_code(subject.function), *thresholds.USUAL]
    generator, sizes = _generator(subject), [subject.check.tensors[name].numel() for name in _floating(subject)]
    wanted = 10 * min(len(set(map(abs, constants))), thresholds.MOST)
    times = min(MOST, math.ceil(wanted / max(1, *sizes))) if sizes else 1

    def draw(start: int, like: Tensor) -> Tensor:
        found = thresholds.points(constants, like.dtype, 2.0 ** families.reach(like.dtype))
        if like.numel() >= families.MANY:  # every point is drawn many times; a permutation takes longer than a check
            return found[torch.randint(len(found), like.shape, generator=generator)]
        order = torch.randperm(len(found), generator=torch.Generator().manual_seed(SEED))
        place = (torch.arange(like.numel()) + start * like.numel()) % len(found)
        shuffled = torch.randperm(like.numel(), generator=generator)
        return found[order[place]][shuffled].reshape(like.shape)

    return _judged(subject, [("thresholds", functools.partial(draw, start)) for start in range(times)])


def _repeated_indices(subject: Subject) -> Finding:
    names = [n for n in subject.free_tensors() if not differentiable(subject.check.tensors[n].dtype)]
    if not names:
        return not_applicable("no free indices")
    changed = {}
    for name in names:
        index = subject.check.tensors[name].clone()
        flat = index.reshape(-1)
        flat[: flat.numel() - flat.numel() // 4] = flat[:1]  # three quarters of them the first one
        changed[name] = index
    extremes = Extremes(subject)
    extremes.look("repeated indices", changed)
    return extremes.finding()


def _masks(subject: Subject) -> Finding:
    """Try boolean tensors that keep nothing, all, and nothing of one row; a kernel may refuse a mask."""
    booleans = [n for n, t in subject.check.tensors.items() if t.dtype is torch.bool]
    free = subject.free_masks()
    names = free or (booleans if subject.settings.ranged else [])
    if not names:
        return not_applicable("every boolean is given" if booleans else "no booleans")
    extremes = Extremes(subject, certain=bool(free) or subject.settings.insist)
    for what, draw in _MASKS.items():
        label = f"{', '.join(names)} {what}"
        with extremes.judgement.trying(label, may_refuse=True):
            extremes.look(label, {n: draw(subject.check.tensors[n]) for n in names})
    return extremes.finding()


def _one_row_false(mask: Tensor) -> Tensor:
    """Return the mask with its first row False and, of several, its last one True."""
    changed = mask.detach().clone()
    if changed.dim() > 1 and changed.numel():
        rows = changed.reshape(-1, changed.shape[-1])
        rows[-1], rows[0] = True, False
        return rows.reshape(mask.shape)
    return changed


_MASKS: dict[str, Draw] = {
    "all False": torch.zeros_like,
    "all True": torch.ones_like,
    "with one row all False": _one_row_false,
}


def _floating(subject: Subject) -> list[str]:
    return [n for n in subject.free_tensors() if differentiable(subject.check.tensors[n].dtype)]


def _judged(subject: Subject, draws: Iterable[tuple[str, Draw]]) -> Finding:
    floating = _floating(subject)
    if not floating and subject.settings.ranged:
        return _judged_within(subject, draws)
    if not floating:
        return not_applicable("every value is given")
    extremes = Extremes(subject)
    for label, draw in draws:
        names = floating[:1] if label == "masked" else floating
        extremes.look(label, {n: _drawn(draw, subject.check.tensors[n]) for n in names})
    return extremes.finding()


def _judged_within(subject: Subject, draws: Iterable[tuple[str, Draw]]) -> Finding:
    """Draw numbers within the range of those that were given; what fails is noted, for they may have a structure."""
    given = {n: t for n, t in subject.check.tensors.items() if t.is_floating_point()}
    extremes = Extremes(subject, certain=subject.settings.insist)
    seen: set[str] = set()
    for label, draw in draws:
        within = {n: _within(_drawn(draw, t), t.detach()) for n, t in given.items()}
        changed = {n: t for n, t in within.items() if t is not None}
        if changed:
            seen.update(changed)
            extremes.look(f"{label}, {', '.join(changed)} drawn in the range given", changed)
    return extremes.finding() if seen else not_applicable("the given values have another range")


def _within(drawn: Tensor, given: Tensor) -> Tensor | None:
    """Return the drawn numbers, those out of range replaced by the given ones; None where most are."""
    ends = finite_range(given)
    if ends is None:
        return None
    numbers = comparable(drawn)
    inside = (numbers >= ends[0]) & (numbers <= ends[1])
    return torch.where(inside, drawn, given) if 2 * int(torch.count_nonzero(inside)) > inside.numel() else None


def _drawn(draw: Draw, like: Tensor) -> Tensor:
    if like.is_complex():
        return torch.complex(*(_drawn(draw, part) for part in parts_of(like)))
    return draw(like).to(like.dtype).to(like.device)


_PLAIN = {
    "ties": "few small whole numbers, many of them equal",
    "outliers": "few numbers much larger than the others",
    "offset": "a large offset with a small spread",
    "huge": "large magnitudes",
    "tiny": "small magnitudes",
    "cancelling": "neighbours that cancel but for their last bits",
    "constants": "rows of one number each",
    "signed_zeros": "zeros of both signs among other numbers",
    "one_hot": "rows of zeros with a single one",
    "probabilities": "numbers from 0 to 1, both ends included",
    "uniform": "numbers from -1 to 1",
}
_ZEROS = "rows of zeros among others, and zeros alone"

# Those that have shown the most faults first: where a Function is large, the last ones are left out for their cost.
ITEMS = (
    Item(
        "values_thresholds",
        "inputs: on both sides of constants in the reference, in the kernel's code, and usual ones",
        _thresholds,
    ),
    Item("values_zeros", f"inputs: {_ZEROS}", _family("zero_rows", "zeros")),
    Item("values_masked", "inputs: rows with a part at -inf, where the reference has a softmax", _masked),
    Item("values_masks", "inputs: booleans that are all False, all True, all False in one row", _masks),
    Item("values_repeated", "inputs: indices that repeat", _repeated_indices),
    *(Item(f"values_{name}", f"inputs: {what}", _family(name)) for name, what in _PLAIN.items()),
    Item("values_subnormals", "inputs: numbers below the smallest normal one", _subnormals),
)
