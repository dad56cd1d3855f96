"""The precision audit: does a kernel inside its worst-case bound work at the declared precision?

The worst-case bound of a long sum is 10 to 500 times what correct kernels show, so arithmetic of half the digits can
hide in it. The audit compares root mean squares over the elements of one output or gradient, each error divided by
the element's bound so that all weigh alike:

    rms        of (actual - exact) / bound for the kernel
    native     of the same for the reference as PyTorch runs it in the declared dtypes, step by step
    legal      of the same for random legal evaluations of the reference, sums in strictly sequential order

    bits lost = log2(rms / max(native, legal));   above 5 the kernel is suspect

The largest error and the factor common to all elements are compared alike (measures.py). A kernel whose errors
are just those of operands rounded to a narrower format is suspect too (fingerprint.py), and one whose results are all
values of a narrower format (stored.py).

What a 16-bit result says of the value that was rounded to it is compared with the reference before its own last
rounding (unrounded.py), under the same limit.

`native` is measured on a part of what is not summed up further, and on all of it where that does not clear the kernel,
then on the forms that are granted beside the reference's own (`Programs.joint_beside`: folded norms, usual functions);
`legal` costs several checks and is made only where `native` alone shows a loss of more than 4 bits (a comparison more
can only lower the loss, so that up to 5 it changes no verdict): the native rounding errors happen to vanish (integers,
constants, few elements), or the kernel's algorithm is legitimately far worse than PyTorch's. See docs/power.md for the
derivation and the measured margins.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import torch

from kernels_core.audit import fingerprint, legal, native
from kernels_core.audit.measures import Measures, bits
from kernels_core.audit.sample import Sample
from kernels_core.audit.stored import stored_in
from kernels_core.audit.unrounded import Unrounded, without_last_casts
from kernels_core.errors import ExactRefError
from kernels_core.filter.threads import each
from kernels_core.program import Program
from kernels_core.reference import Check, Result
from kernels_core.report import SUSPECT_BITS, Precision

Outcome = TypeVar("Outcome")
Tensor = torch.Tensor
Tensors = Mapping[str, Tensor]
Evaluate = Callable[[Program, Tensors], dict[str, Tensor]]

SMALL = 1 << 15  # elements that one thread is as fast with
FEW = 64  # elements: the native errors of fewer are no measure of anything
CLEAR = 1.0  # bits lost that need no second look even then
NEAR = 4.0  # bits lost against the native run, in any of the measures, from which legal runs are made as well
RECOGNISABLE = 4.0  # bits lost against the native run that call for a fingerprint; orders of summation reach 3


def for_each(tensors: Mapping[str, Tensor | Sample], function: Callable[[str], Outcome]) -> dict[str, Outcome]:
    """Return what `function` makes of every name, each in a thread of its own where the tensors are not small."""
    counts = [tensor.numel() if isinstance(tensor, Tensor) else tensor.count for tensor in tensors.values()]
    if sum(counts) < SMALL:
        return {name: function(name) for name in tensors}
    device = next(t.device if isinstance(t, Tensor) else t.mid.device for t in tensors.values())
    return dict(zip(tensors, each(function, list(tensors), device), strict=True))


def _as_it_is(operation: str, operand: Tensor) -> Tensor:
    return operand


def audit(
    check: Check, upstream: Sequence[Tensor], results: Mapping[str, Result], actual: Tensors
) -> dict[str, Precision]:
    """Return the precision of each tensor that can be measured.

    Args:
        check: the reference at its inputs.
        upstream: the upstream gradients, one per floating output.
        results: what a kernel may return, by name.
        actual: what the kernel returned; every name is in `results`.
    """
    taken = for_each(actual, lambda name: Sample.of(results[name], actual[name]))
    samples = {name: sample for name, sample in taken.items() if sample is not None}
    if not samples:
        return {}
    joint = any(name.startswith("grad_") for name in results)
    inputs = {**check.parts, **(check.upstream(upstream) if joint else {})}
    program = check.joint if joint else check.forward
    shown_by = _native(check, program, inputs, partial=True)
    shown = _measured(samples, shown_by)
    found = for_each(samples, lambda name: _precision(samples[name], shown.get(name, Measures()), None))
    known = {name: sample for name, sample in samples.items() if name in shown_by}
    stored = for_each(known, lambda name: stored_in(known[name], shown_by[name], check.profile.accumulate))
    formats = _fingerprints(check, program, inputs, {n: samples[n] for n, p in found.items() if _recognisable(p)})
    for form in (program, check.joint_beside if joint else check.forward_beside):
        if form is None or not (doubtful := _doubtful(samples, found)):
            break
        there = _measured(doubtful, _native(check, _only(check, form, doubtful), inputs))
        if form is not program:  # of which a part was measured before
            there = {name: shown.get(name, Measures()).largest(measures) for name, measures in there.items()}
        shown |= there
        found |= {name: _precision(sample, shown.get(name, Measures()), None) for name, sample in doubtful.items()}
    before = _before_the_last_rounding(check, program, inputs, samples)
    settled = {name for name, lost in before.items() if lost > SUSPECT_BITS}
    if doubtful := {n: s for n, s in _doubtful(samples, found).items() if n not in settled}:
        allowed = _legal(check, _only(check, program, doubtful), inputs, doubtful)
        found |= {n: _precision(sample, shown.get(n, Measures()), allowed[n]) for n, sample in doubtful.items()}
    return {
        name: dataclasses.replace(p, works_in=formats.get(name, ""), stored_in=stored.get(name, ""),
                                  unrounded_bits=before.get(name, -math.inf))
        for name, p in found.items()
    }  # fmt: skip


def _before_the_last_rounding(
    check: Check, program: Program, inputs: Tensors, samples: Mapping[str, Sample]
) -> dict[str, float]:
    """Return the bits that 16-bit results lost before their last rounding, where that can be said."""
    if check.declared_program is not None:
        return {}
    wide, flushes = without_last_casts(_only(check, program, samples)), check.profile.flush_subnormals
    inner = {n: Unrounded.before(s, flushes=flushes) for n, s in samples.items() if n in wide.outputs}
    inner = {name: sample for name, sample in inner.items() if bool(sample.least.any())}
    shown: dict[str, Measures] = {}
    for partial in (True, False):
        open_ = {n: s for n, s in inner.items() if s.lost(shown.get(n, Measures()), settled=False) > NEAR}
        shown |= _measured(open_, _native(check, wide.only(list(open_)), inputs, partial=partial)) if open_ else {}
    open_ = {n: s for n, s in inner.items() if s.lost(shown.get(n, Measures()), settled=False) > NEAR}
    legal_too = _legal(check, wide.only(list(open_)), inputs, open_) if open_ else {}
    known = {n: shown.get(n, Measures()).largest(legal_too.get(n, Measures())) for n in inner}
    return {n: s.lost(known[n], settled=n in legal_too) for n, s in inner.items()}


def _recognisable(precision: Precision) -> bool:
    return precision.elements >= FEW and RECOGNISABLE < precision.bits_lost < math.inf


def _doubtful(samples: Mapping[str, Sample], found: Mapping[str, Precision]) -> dict[str, Sample]:
    return {name: samples[name] for name, precision in found.items() if _needs_another_look(precision)}


def _needs_another_look(precision: Precision) -> bool:
    limits = (CLEAR if precision.elements < FEW else NEAR, NEAR, NEAR)
    return any(found > limit for found, limit in zip(precision.bits, limits, strict=True))


def _precision(sample: Sample, shown: Measures, legal_too: Measures | None) -> Precision:
    own, settled = sample.measures(sample.actual), legal_too is not None
    known = shown.largest(legal_too or shown).with_chance(sample.different)
    return Precision(
        sample.count,
        own.rms,
        float(sample.own.mean()),
        shown.rms,
        None if legal_too is None else legal_too.rms,
        bits(own.rms, known.rms, settled=settled),
        bits(own.peak, known.peak, settled=settled),
        bits(own.common, known.common, settled=settled),
    )


def _measured(samples: Mapping[str, Sample], values: Tensors) -> dict[str, Measures]:
    known = {name: sample for name, sample in samples.items() if name in values}
    return for_each(known, lambda name: known[name].measures(values[name]))


def _fingerprints(check: Check, program: Program, inputs: Tensors, samples: Mapping[str, Sample]) -> dict[str, str]:
    """Return the narrower format in which a kernel works undeclared, for the tensors where it shows."""
    found: dict[str, str] = {}
    open_ = dict(samples)
    for narrowed in fingerprint.declared(check.profile):
        values = _native(check, _only(check, program, open_), inputs, narrowed) if open_ else {}
        open_ = {n: s for n, s in open_.items() if n not in values or not fingerprint.explains(s, values[n])}
    for name in fingerprint.undeclared(check.profile.matmul_input):
        if not open_:
            break
        values = _native(check, _only(check, program, open_), inputs, fingerprint.narrowed(name))
        for tensor, sample in list(open_.items()):
            if tensor not in values or fingerprint.explains(sample, values[tensor]):
                found |= {tensor: name} if tensor in values else {}
                del open_[tensor]
            elif fingerprint.exceeds(sample, values[tensor]):
                del open_[tensor]
    return found


def _only(check: Check, program: Program, names: Iterable[str]) -> Program:
    """Return the part of the program that these tensors need; a declared backward needs the outputs."""
    wanted = {*names, *(check.forward.outputs if check.declared_program is not None else ())}
    return program.only([name for name in program.outputs if name in wanted])


def _native(
    check: Check, program: Program, inputs: Tensors, narrowed: fingerprint.Narrowed = _as_it_is, partial: bool = False
) -> dict[str, Tensor]:
    """Return the native results; none where PyTorch lacks a kernel for some dtype: legal runs make up for that."""

    def evaluate(part: Program, given: Tensors) -> dict[str, Tensor]:
        return native.evaluate(part, given, check.profile, narrowed, partial and check.declared_program is None)

    try:
        return evaluated(check, program, inputs, evaluate)
    except ExactRefError:
        raise
    except (RuntimeError, NotImplementedError, TypeError):
        return {}


def _legal(check: Check, program: Program, inputs: Tensors, samples: Mapping[str, Sample]) -> dict[str, Measures]:
    """Return the larger measures of the independent and of the coherent random legal evaluations."""
    runs, noises = legal.replicates(min(sample.count for sample in samples.values())), legal.Noises()
    found = dict.fromkeys(samples, Measures())
    for coherent in (False, True):
        draws = [legal.Evaluation(check.profile, seed, coherent, noises) for seed in range(runs)]
        several = [_measured(samples, evaluated(check, program, inputs, draw.evaluate)) for draw in draws]
        found = {n: found[n].largest(Measures.mean_square([one[n] for one in several])) for n in samples}
    return found


def evaluated(check: Check, program: Program, inputs: Tensors, evaluate: Evaluate) -> dict[str, Tensor]:
    """Evaluate the program, and the declared backward from the outputs that this gave."""
    found = evaluate(program, inputs)
    declared = check.declared_program
    if declared is not None:
        given = {**inputs, **{name: found[name] for name in check.forward.outputs}}
        found |= evaluate(declared, {name: given[name] for name in declared.inputs})
    return found
