"""Outputs that a Function declares to be constants, though the reference has a derivative of them."""

from __future__ import annotations

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.sharing import returned
from kernels_core.battery.subject import Subject
from kernels_core.kernel.call import run_forward
from kernels_core.tracing.standin import functions_as_forwards


def _differentiable_outputs(subject: Subject) -> Finding:
    """Compare which outputs require a gradient with those of the reference, which may detach one to say it is meant."""
    if not subject.wrt or not subject.check.cotangents:
        return not_applicable("nothing is differentiated")
    judgement = Judgement(subject)
    leaves = subject.leaves()
    with functions_as_forwards():
        own = run_forward(subject.check.reference.function, subject.arguments, subject.arguments, leaves)
    outputs = subject.once("returned", returned).outputs
    for name in subject.check.cotangents:
        if name in outputs and own[name].requires_grad and not outputs[name].requires_grad:
            judgement.fault(f"{name} requires no gradient (detached, or mark_non_differentiable) and the reference's "
                            "does; detach it in the reference where that is meant")  # fmt: skip
    return judgement.finding(", ".join(name for name in subject.check.cotangents if own[name].requires_grad))


ITEMS = (
    Item("differentiable_outputs", "an output requires a gradient where the reference's does", _differentiable_outputs),
)
