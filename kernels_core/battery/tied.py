"""Ties judged together: what tied elements get is one convex combination, not as much for each as for a single one.

At a tie each element of a gradient may be anything between its one-sided values, so a maximum that gives its full
gradient to all k of its tied elements passes element by element, though together they get k times too much. Move all
inputs along a direction v that is one number for one value: what was tied stays tied, so along v nothing has a kink,
and every legal choice of shares has the same derivative,

    sum_i grad_i v_i  =  sum_i mid_i v_i,   mid by PyTorch's convention,

within sum_i |v_i| (bound_i + rad_i), and two roundings of each share that another choice has: 4 u sum_i |v_i grad_i|.

It holds where all ties are of this kind: where as many are met after a small step along v as before it, and where the
reference compares no tensors by itself (its branches need not meet). Otherwise nothing is judged.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.subject import Subject
from kernels_core.formats import format_of
from kernels_core.inputs import families
from kernels_core.kernel.call import run_kernel
from kernels_core.program import Program
from kernels_core.reference import Check, Result
from kernels_core.tracing import trace as tracing

Tensor = torch.Tensor
SEED = 0x71ED
DIRECTIONS = 3
_COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")


def _tied_elements(subject: Subject) -> Finding:
    if not subject.wrt or not subject.upstream or subject.check.kinks != "accept":
        return not_applicable("nothing is differentiated, or the convention is insisted on")
    if not set(subject.wrt) <= set(subject.free_tensors()):
        return not_applicable("values are given")
    if subject.check.reference.declared is not None or _compares(subject.check.forward):
        return not_applicable("the reference compares tensors, or declares its backward")
    generator = torch.Generator().manual_seed(SEED + subject.settings.seed)
    check = _moved(subject, {n: families.draw("ties", tuple(t.shape), generator, t.dtype).to(t)
                             for n, t in subject.check.tensors.items() if n in subject.wrt})  # fmt: skip
    ties = check.ties(subject.upstream)
    if not ties:
        return not_applicable("the reference has no ties at small whole numbers")
    _, found = run_kernel(subject.function, subject.inputs, check.arguments, check, subject.upstream)
    results, judgement, judged = check.both(subject.upstream), Judgement(subject), 0
    for _ in range(DIRECTIONS):
        direction = _direction(check, generator)
        after = _moved(subject, {name: check.tensors[name] + v / 2 for name, v in direction.items()})
        if found is not None and after.ties(subject.upstream) == ties:
            judged += 1
            _look_at(judgement, results, found, direction)
    if not judged:
        return not_applicable("not judged: there are ties that no direction keeps, as at a threshold")
    return judgement.finding(f"{ties} ties get one convex combination in {judged} directions that keep them")


def _compares(program: Program) -> bool:
    return any(step.name.startswith("aten.") and step.name.split(".")[1] in _COMPARISONS for step in program.steps)


def _moved(subject: Subject, changed: Mapping[str, Tensor]) -> Check:
    before = subject.check
    arguments = tracing.with_tensors(before.arguments, {**before.tensors, **changed})
    return Check(before.reference, arguments, profile=before.profile, wrt=before.wrt)


def _direction(check: Check, generator: torch.Generator) -> dict[str, Tensor]:
    """Draw a number in [1/16, 15/16] for each value, whole numbers from -2 to 2, the same in every input."""
    numbers = torch.randint(1, 16, (5,), generator=generator).to(torch.float64) / 16
    return {n: numbers[check.tensors[n].to(torch.int64).cpu() + 2].to(check.tensors[n]) for n in check.wrt}


def _look_at(
    judgement: Judgement,
    results: Mapping[str, Result],
    found: Mapping[str, Tensor | None],
    direction: Mapping[str, Tensor],
) -> None:
    """Compare the sums along a direction; the float64 rounding of sums this short is far below the doubled bound."""
    actual = wanted = allowed = 0.0
    for name, v in direction.items():
        result, grad = results[f"grad_{name}"], found[f"grad_{name}"]
        size = v.to(torch.float64).abs()
        own = torch.zeros_like(size) if grad is None else grad.to(torch.float64) * size
        actual += float(own.sum())
        allowed += 4 * format_of(result.meta.dtype).unit_roundoff * float(own.abs().sum())
        wanted += float((result.enclosure.mid * size).sum())
        allowed += 2 * float((size * (result.enclosure.bound_or_zero() + result.rad_abs())).sum())
    if abs(actual - wanted) > allowed:
        names = ", ".join(f"grad_{name}" for name in direction)
        judgement.fault(f"small whole numbers: tied elements of {names} get {actual:.9g} along a direction that "
                        f"keeps the ties, not {wanted:.9g} +- {allowed:.2g}: no convex combination")  # fmt: skip


ITEMS = (Item("tied_elements", "what tied elements get together is one convex combination", _tied_elements),)
