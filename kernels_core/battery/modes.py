"""A module in its other mode: training where evaluation was checked, evaluation where training was.

A reference that is a module too, or the kernel's own forward, goes into that mode with it, and the kernel is held to
it. A function has no modes: what a module does differently in the other one may be meant (batch norm), and is noted.
"""

from __future__ import annotations

import functools

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.other_inputs import look_again
from kernels_core.battery.subject import Subject
from kernels_core.kernel.modules import ModuleKernel, module_behind
from kernels_core.report import Outcome

MODES = {True: "training mode", False: "evaluation mode"}


def _other_mode(subject: Subject) -> Finding:
    kernel, reference = subject.function, subject.check.reference
    if not isinstance(kernel, ModuleKernel):
        return not_applicable("no module")
    label, judgement = MODES[not kernel.training], Judgement(subject)
    behind = module_behind(reference.function) if reference.declared is None else None
    again = functools.partial(subject.again, function=kernel.in_mode("eval" if kernel.training else "train"))
    if behind is not None:  # as it was given: None where the forward of the kernel is its own reference
        again = functools.partial(again, reference=None if behind is kernel else behind.module)
    if not look_again(judgement, label, subject.inputs, again):
        return Finding(Outcome.NOTED, f"not judged in {label}: the reference has no value there")
    if behind is None:
        judgement.remarks += [f"{text}; the reference has no modes" for text in judgement.faults]
        judgement.faults.clear()
    return judgement.finding(f"right in {label} too")


ITEMS = (
    Item("other_mode", "a module in training mode, if evaluation was checked, and the other way round", _other_mode),
)
