"""What the backward returns before the engine repairs it, and gradients that are None."""

from __future__ import annotations

import torch

from kernels_core.battery import graph
from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.subject import Subject
from kernels_core.errors import ExactRefError
from kernels_core.reference import Check, Result
from kernels_core.tracing.arguments import with_tensors
from kernels_core.tracing.complex_parts import differentiable, returned_apart

Tensor = torch.Tensor


def _raw_backward(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    leaves = subject.leaves()
    outputs = subject.forward(leaves)
    with graph.raw_gradients(outputs.values()) as found:
        subject.backward(outputs, leaves)
    if not found:
        return not_applicable("no backward of an autograd.Function ran")
    for raw in found:
        _look_at(judgement, raw)
    right = "1 gradient has" if len(found) == 1 else f"{len(found)} gradients have"
    return judgement.finding(
        f"{right} the shape, dtype and device of {'its input' if len(found) == 1 else 'their inputs'}"
    )


def _look_at(judgement: Judgement, raw: graph.RawGradient) -> None:
    """Another shape is a fault; another dtype is not: under autocast PyTorch's own examples return one."""
    if not isinstance(raw.value, torch.Tensor):
        return
    what = f"{raw.owner}.backward returned for {raw.argument}"
    if tuple(raw.value.shape) != raw.shape:
        judgement.fault(f"{what} the shape {list(raw.value.shape)}, not {list(raw.shape)}; the engine sums it silently")
    if raw.value.device != raw.device:
        judgement.fault(f"{what} a tensor on {raw.value.device}, not {raw.device}")
    if raw.value.dtype != raw.dtype:
        returned, wanted = (str(dtype).removeprefix("torch.") for dtype in (raw.value.dtype, raw.dtype))
        judgement.remark(f"{what} {returned}, not {wanted}; the engine casts it silently")


def _none_gradient(subject: Subject) -> Finding:
    """Compare None, which means zero, with the true gradient: at these inputs, and where it is zero here, at -x."""
    gradients = returned_apart(subject.gradients, subject.results)
    missing = [name for name, value in gradients.items() if value is None]
    if not missing:
        return not_applicable("every input that needs a gradient gets one")
    judgement = Judgement(subject)
    unsettled = [name for name in missing if not _nonzero(judgement, name, subject.results[name], "")]
    if any(subject.results[name].source is not None for name in unsettled):
        _at_negated(judgement, unsettled)
    return judgement.finding(f"None for {', '.join(missing)}, whose true gradient is zero")


def _nonzero(judgement: Judgement, name: str, result: Result, where: str) -> bool:
    """Return True, and fail, where zero is certainly not what a correct kernel may return."""
    mid = result.enclosure.mid
    wrong = mid.isfinite() & (mid.abs() > result.enclosure.bound_or_zero() + result.rad_abs())
    if not bool(wrong.any()):
        return False
    index = tuple(int(i) for i in torch.nonzero(wrong)[0])
    judgement.fault(f"{name} is None{where}, the true gradient is not zero at {int(wrong.sum())} of {wrong.numel()} "
                    f"elements, {list(index)} is {mid[index].item():.9g}")  # fmt: skip
    return True


def _at_negated(judgement: Judgement, names: list[str]) -> None:
    subject = judgement.subject
    negated = {n: -t if differentiable(t.dtype) else t for n, t in subject.check.tensors.items()}
    check = Check(
        subject.check.reference, with_tensors(subject.arguments, negated), profile=subject.check.profile,
        wrt=subject.wrt, kinks=subject.check.kinks, budget=subject.check.budget,
    )  # fmt: skip
    try:
        results = check.both(list(subject.upstream))
    except ExactRefError:  # the reference has no value there
        return
    with judgement.trying("negated inputs", may_refuse=True):
        leaves = {n: t.detach().clone().requires_grad_(n in subject.wrt) for n, t in negated.items()}
        found = returned_apart(subject.run(leaves), results)
        for name in names:
            if found.get(name) is None:
                _nonzero(judgement, name, results[name], " at negated inputs too")


ITEMS = (
    Item("raw_backward", "the backward itself returns the input's shape, dtype and device; the engine repairs silently",
         _raw_backward),
    Item("none_gradient", "None for an input that needs a gradient stands for a true gradient of zero", _none_gradient),
)  # fmt: skip
