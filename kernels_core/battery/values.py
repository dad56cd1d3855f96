"""Families of values: the plain comparison again, with inputs that show what friendly numbers hide.

Only inputs that nobody gave values for are drawn anew. A family is judged where the reference has a value and PyTorch,
running the reference itself, stays inside of its own intervals: beyond that a correct kernel may differ as well. What
the bounds cannot decide there is said and never counted as covered.

On zeros, ones and large offsets an interval can be so narrow that it holds the reference's own algorithm and no other:
not a gradient recomputed from the output, nor a recurrence cut into blocks. Unless a family is asked for by name, only
what is grossly wrong fails: infinite, NaN, or off by more than half of the format's digits of the largest value; the
rest is noted, and nothing is judged where the values come near the ends of the format's range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from kernels_core import families, tracing
from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.subject import Subject
from kernels_core.coverage import Element
from kernels_core.errors import ExactRefError
from kernels_core.kernel import run_kernel
from kernels_core.program import Program
from kernels_core.reference import Check, Result
from kernels_core.report import Outcome
from kernels_core.standin import functions_as_forwards

Tensor = torch.Tensor
SEED = 0xFA3117
_SCORES = ("aten._softmax.default", "aten._log_softmax.default", "aten.logsumexp.default")
_COMPARED = ("gt", "ge", "lt", "le", "eq", "ne", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold", "softplus")


class Run(NamedTuple):
    """One run of a kernel: what it may return and what it returned."""

    results: Mapping[str, Result]
    found: Mapping[str, Tensor | None]


def _family(name: str) -> Callable[[Subject], Finding]:
    def run(subject: Subject) -> Finding:
        generator = torch.Generator().manual_seed(SEED + subject.settings.seed)
        return _judged(subject, name, lambda like: families.draw(name, tuple(like.shape), generator, like.dtype))

    return run


def _masked(subject: Subject) -> Finding:
    if not any(step.name in _SCORES for step in subject.check.forward.steps):
        return not_applicable("nothing is masked without a softmax")
    return _family("masked")(subject)


def _subnormals(subject: Subject) -> Finding:
    if subject.check.profile.name != "ieee":
        return not_applicable(f"the profile {subject.check.profile.name} may flush subnormals")
    return _family("subnormals")(subject)


def _thresholds(subject: Subject) -> Finding:
    found = sorted(set(thresholds(subject.check.forward)))
    if not found:
        return not_applicable("the reference compares with no constant")
    generator = torch.Generator().manual_seed(SEED + subject.settings.seed)
    return _judged(subject, "thresholds", lambda like: families.near(found, tuple(like.shape), generator, like.dtype))


def thresholds(program: Program) -> Iterator[float]:
    """Yield the constants that the program compares with."""
    for step in program.steps:
        if step.name.startswith("aten.") and step.name.split(".")[1] in _COMPARED:
            plain = [*step.args, *step.kwargs.values()]
            yield from (float(x) for x in plain if isinstance(x, (int, float)) and not isinstance(x, bool))
        elif step.name.startswith(("aten.relu", "aten.abs")):
            yield 0.0


def _repeated_indices(subject: Subject) -> Finding:
    names = [n for n in _free(subject) if not subject.check.tensors[n].is_floating_point()]
    if not names:
        return not_applicable("no free indices")
    changed = {}
    for name in names:
        index = subject.check.tensors[name].clone()
        flat = index.reshape(-1)
        flat[: flat.numel() - flat.numel() // 4] = flat[:1]  # three quarters of them the first one
        changed[name] = index
    return _compared(subject, "repeated indices", changed)


def _free(subject: Subject) -> list[str]:
    """Return the names, as the reference has them, of the tensors that nobody gave values for."""
    names = dict(zip(tracing.named_tensors(subject.inputs), subject.check.tensors, strict=True))
    kept = (n for n in subject.settings.free if n in names)
    return [names[n] for n in kept if subject.check.tensors[names[n]].dtype is not torch.bool]


def _judged(subject: Subject, label: str, draw: Callable[[Tensor], Tensor]) -> Finding:
    floating = [n for n in _free(subject) if subject.check.tensors[n].is_floating_point()]
    floating = floating[:1] if label == "masked" else floating
    if not floating:
        return not_applicable("every value is given")
    return _compared(subject, label, {n: _drawn(draw, subject.check.tensors[n]) for n in floating})


def _drawn(draw: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    return draw(like).to(like.dtype).to(like.device)


def _compared(subject: Subject, label: str, changed: Mapping[str, Tensor]) -> Finding:
    try:
        check = _check(subject, changed)
        if [m.shape for m in check.cotangents.values()] != [tuple(g.shape) for g in subject.upstream]:
            return Finding(Outcome.NOTED, "not judged: outputs have other shapes with these values")
        run = _run(subject, check, subject.function)
        _, reference = _run(subject, check, None, run.results)
    except ExactRefError as error:
        return Finding(Outcome.NOTED, f"not judged: {str(error).splitlines()[0]}")
    if why := _out_of_reach(subject, run.results, reference):
        return Finding(Outcome.NOTED, f"not judged: {why}")
    judgement = Judgement(subject)
    judgement.look(label, run.found, run.results, doubts=False)
    if not subject.settings.insist and not any(_grossly_wrong(run, name) for name in run.found):
        judgement.remarks += [f"outside, though by less than half of the digits: {text}" for text in judgement.faults]
        judgement.faults.clear()
    total, open_ = _counts(run)
    passed = f"{total} elements" + (f", {open_} of them not decided by this family" if open_ else "")
    return judgement.finding(passed, noted=total == open_)


def _check(subject: Subject, changed: Mapping[str, Tensor]) -> Check:
    """Return the check at other values; what was traced on tensors without values holds for them too."""
    before = subject.check
    arguments = tracing.with_tensors(before.arguments, {**before.tensors, **changed})
    check = Check(before.reference, arguments, profile=before.profile, wrt=before.wrt, kinks=before.kinks)
    for name in ("forward", "joint"):
        program = before.__dict__.get(name)
        if program is not None and program.value_free:
            check.__dict__[name] = program
    return check


def _run(subject: Subject, check: Check, function: Any, results: Mapping[str, Result] | None = None) -> Run:
    """Run the kernel, or PyTorch on the reference itself where `function` is None."""
    if function is None:
        with functions_as_forwards():
            own = check.reference.function
            outputs, gradients = run_kernel(own, check.arguments, check.arguments, check, subject.upstream)
    else:
        outputs, gradients = run_kernel(function, subject.inputs, check.arguments, check, subject.upstream)
    if results is None:
        results = check.outputs() if gradients is None else check.both(subject.upstream)
    return Run(results, {**outputs, **(gradients or {})})


def _out_of_reach(subject: Subject, results: Mapping[str, Result], reference: Mapping[str, Tensor | None]) -> str:
    """Return why a correct kernel cannot be held to these intervals, "" where it can."""
    for name, result in results.items():
        if not name.startswith("grad_") and result.enclosure.floating and bool(result.enclosure.mid.isnan().any()):
            return f"the reference has no value for some elements of {name}"
    for name, result in results.items():
        if result.enclosure.floating and not subject.settings.insist and (near := _near_the_ends(result)):
            return f"{name} {near}"
    for name, actual in reference.items():
        if name not in results or (name.startswith("grad_") and subject.check.reference.surrogate):
            continue
        value = torch.zeros(results[name].meta.shape, dtype=results[name].meta.dtype) if actual is None else actual
        if bool((results[name].verdict(value) == Element.VIOLATED).any()):
            return f"PyTorch on the reference itself leaves the intervals of {name}"
    return ""


def _near_the_ends(result: Result) -> str:
    """Return which end of the format's range the values come near: there another order overflows or vanishes."""
    sizes, info = result.enclosure.mid.abs(), torch.finfo(result.meta.dtype)
    sizes = sizes[sizes.isfinite() & (sizes > 0)]
    if not sizes.numel():
        return ""
    if float(sizes.max()) > float(info.max) ** 0.75:
        return "comes near overflow"
    return "comes near underflow" if float(sizes.max()) < float(info.smallest_normal) ** 0.75 else ""


def _grossly_wrong(run: Run, name: str) -> bool:
    """Return True where a violated element is not finite, or off by more than 2^-(p/2) of the largest value."""
    actual, result = run.found[name], run.results.get(name)
    if result is None or not result.enclosure.floating:
        return result is not None and actual is not None and bool((result.verdict(actual) == Element.VIOLATED).any())
    value = torch.zeros(result.meta.shape, dtype=result.meta.dtype) if actual is None else actual
    if (tuple(value.shape), value.dtype) != (result.meta.shape, result.meta.dtype):
        return True
    mid = result.enclosure.mid
    error = (value.to(mid) - mid).abs().nan_to_num(nan=torch.inf)
    largest = mid.abs().nan_to_num(posinf=0.0).max() if mid.numel() else mid.sum()
    limit = 2.0 ** -(families.precision(result.meta.dtype) // 2) * largest
    return bool(((result.verdict(value) == Element.VIOLATED) & (error > limit)).any())


def _counts(run: Run) -> tuple[int, int]:
    """Return the number of elements, and of those that are neither covered nor violated."""
    total = open_ = 0
    for name, actual in run.found.items():
        if actual is None or name not in run.results:
            continue
        codes = run.results[name].verdict(actual)
        total += codes.numel()
        open_ += int(((codes == Element.UNDECIDED) | (codes == Element.UNCONSTRAINED)).sum())
    return total, open_


_PLAIN = {
    "uniform": "numbers from -1 to 1",
    "offset": "a large offset with a small spread",
    "huge": "large magnitudes",
    "tiny": "small magnitudes",
    "outliers": "few numbers much larger than the others",
    "ties": "few small whole numbers, many of them equal",
    "signed_zeros": "zeros of both signs among other numbers",
    "constants": "rows of one number each",
    "cancelling": "neighbours that cancel but for their last bits",
    "one_hot": "rows of zeros with a single one",
    "probabilities": "numbers from 0 to 1, both ends included",
}

ITEMS = (
    *(Item(f"values_{name}", f"inputs: {what}", _family(name)) for name, what in _PLAIN.items()),
    Item("values_subnormals", "inputs: numbers below the smallest normal one", _subnormals),
    Item("values_thresholds", "inputs: on both sides of every constant that the reference compares with", _thresholds),
    Item("values_masked", "inputs: rows with a part at -inf, where the reference has a softmax", _masked),
    Item("values_repeated", "inputs: indices that repeat", _repeated_indices),
)
