"""What a module's forward does to its buffers: running statistics may move in training, nothing may in evaluation."""

from __future__ import annotations

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import same_bits
from kernels_core.battery.subject import Subject
from kernels_core.kernel.modules import ModuleKernel
from kernels_core.report import Outcome


def _buffers(subject: Subject) -> Finding:
    kernel = subject.function
    if not isinstance(kernel, ModuleKernel) or not kernel.buffers:
        return not_applicable("no buffers of a module")
    subject.run()
    before = kernel.buffers_before()
    changed = [name for name, after in kernel.buffers_after.items() if not same_bits(after, before[name])]
    if not changed:
        return Finding(Outcome.PASS, f"unchanged: {', '.join(before)}")
    if kernel.training:
        return Finding(Outcome.PASS, f"changed in training mode, as running statistics are: {', '.join(changed)}")
    return Finding(Outcome.FAIL, f"the forward changed {', '.join(changed)} in evaluation mode")


ITEMS = (Item("buffers", "in evaluation mode a module leaves its buffers as they are", _buffers),)
