"""The precision audit: does a kernel inside its worst-case bound work at the declared precision?

The worst-case bound of a long sum is 10 to 500 times what correct kernels show, so arithmetic of half the digits can
hide in it. The audit compares root mean squares over the elements of one output or gradient, each error divided by
the element's bound so that all weigh alike:

    rms        of (actual - exact) / bound for the kernel
    native     of the same for the reference as PyTorch runs it in the declared dtypes, step by step
    legal      of the same for random legal evaluations of the reference, sums in strictly sequential order

    bits lost = log2(rms / max(native, legal));   above 5 the kernel is suspect

A kernel whose errors are just those of operands rounded to a narrower format is suspect too (fingerprint.py).

`native` is measured on a part of what is not summed up further, and on all of it where that does not clear the kernel;
`legal` costs as much as the check and is needed only where `native` alone does not clear the kernel: its rounding
errors happen to vanish (integers, constants, few elements), or a sequential sum is legitimately far worse than
PyTorch's blocked one. See docs/power.md for the derivation and the measured margins.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from kernels_core.audit import fingerprint, legal, native
from kernels_core.audit.sample import Sample, root_mean_square
from kernels_core.errors import ExactRefError
from kernels_core.program import Program
from kernels_core.reference import Check, Result
from kernels_core.report import Precision

Tensor = torch.Tensor
Tensors = Mapping[str, Tensor]
Narrowed = Callable[[str, Tensor], Tensor]
Evaluate = Callable[[Program, Tensors], dict[str, Tensor]]

FEW = 64  # elements: the native errors of fewer are no measure of anything
CLEAR = 1.0  # bits lost that need no second look even then
RECOGNISABLE = 4.0  # bits lost against the native run that call for a fingerprint; orders of summation reach 3


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
    taken = {name: Sample.of(results[name], value) for name, value in actual.items()}
    samples = {name: sample for name, sample in taken.items() if sample is not None}
    if not samples:
        return {}
    joint = any(name.startswith("grad_") for name in results)
    inputs = {**check.parts, **(check.upstream(upstream) if joint else {})}
    program = check.joint if joint else check.forward
    shown = _measured(samples, _native(check, program, inputs, partial=True))
    found = {name: _precision(sample, shown.get(name, 0.0), None) for name, sample in samples.items()}
    formats = _fingerprints(check, program, inputs, {n: samples[n] for n, p in found.items() if _recognisable(p)})
    for look in (_against_all, _against_legal):
        doubtful = {name: samples[name] for name, precision in found.items() if _needs_another_look(precision)}
        if doubtful:
            found |= look(check, program, inputs, doubtful, found)
    return {name: dataclasses.replace(p, works_in=formats.get(name, "")) for name, p in found.items()}


def _recognisable(precision: Precision) -> bool:
    return precision.elements >= FEW and RECOGNISABLE < precision.bits_lost < math.inf


def _needs_another_look(precision: Precision) -> bool:
    return precision.suspect or (precision.elements < FEW and precision.bits_lost > CLEAR)


def _precision(sample: Sample, native_rms: float, legal_rms: float | None) -> Precision:
    rms = root_mean_square(sample.own)
    known = max(native_rms, legal_rms or 0.0)
    if rms == 0:
        bits = -math.inf
    elif known == 0:  # nothing to compare with: that is no evidence against the kernel once legal runs were made
        bits = math.inf if legal_rms is None else 0.0
    else:
        bits = math.log2(rms / known)
    return Precision(sample.count, rms, float(sample.own.mean()), native_rms, legal_rms, bits)


def _measured(samples: Mapping[str, Sample], values: Tensors) -> dict[str, float]:
    return {name: sample.rms(values[name]) for name, sample in samples.items() if name in values}


def _fingerprints(check: Check, program: Program, inputs: Tensors, samples: Mapping[str, Sample]) -> dict[str, str]:
    """Return the narrower format in which a kernel works, for the tensors where it shows."""
    found: dict[str, str] = {}
    open_ = dict(samples)
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
    check: Check, program: Program, inputs: Tensors, narrowed: Narrowed = _as_it_is, partial: bool = False
) -> dict[str, Tensor]:
    """Return the native results; none where PyTorch lacks a kernel for some dtype: legal runs make up for that."""

    def evaluate(part: Program, given: Tensors) -> dict[str, Tensor]:
        return native.evaluate(part, given, check.profile, narrowed, partial and check.declared_program is None)

    try:
        return _evaluated(check, program, inputs, evaluate)
    except ExactRefError:
        raise
    except (RuntimeError, NotImplementedError, TypeError):
        return {}


def _against_all(
    check: Check, program: Program, inputs: Tensors, samples: Mapping[str, Sample], found: Mapping[str, Precision]
) -> dict[str, Precision]:
    """Return the precision against the native run of everything, where a part of it did not clear the kernel."""
    shown = _measured(samples, _native(check, _only(check, program, samples), inputs))
    return {name: _precision(samples[name], rms, None) for name, rms in shown.items()}


def _against_legal(
    check: Check, program: Program, inputs: Tensors, samples: Mapping[str, Sample], found: Mapping[str, Precision]
) -> dict[str, Precision]:
    """Return the precision against random legal evaluations too."""
    allowed = _legal(check, program, inputs, samples)
    return {name: _precision(sample, found[name].native_rms, allowed[name]) for name, sample in samples.items()}


def _legal(check: Check, program: Program, inputs: Tensors, samples: Mapping[str, Sample]) -> dict[str, float]:
    """Return the larger rms of the independent and of the coherent random legal evaluations."""
    runs = legal.replicates(min(sample.count for sample in samples.values()))
    found = dict.fromkeys(samples, 0.0)
    for coherent in (False, True):
        squares = dict.fromkeys(samples, 0.0)
        for seed in range(runs):
            draw = legal.Evaluation(check.profile, seed, coherent)
            for name, rms in _measured(samples, _evaluated(check, program, inputs, draw.evaluate)).items():
                squares[name] += rms**2 / runs
        found = {name: max(found[name], math.sqrt(squares[name])) for name in samples}
    return found


def _evaluated(check: Check, program: Program, inputs: Tensors, evaluate: Evaluate) -> dict[str, Tensor]:
    """Evaluate the program, and the declared backward from the outputs that this gave."""
    found = evaluate(program, inputs)
    declared = check.declared_program
    if declared is not None:
        given = {**inputs, **{name: found[name] for name in check.forward.outputs}}
        found |= evaluate(declared, {name: given[name] for name in declared.inputs})
    return found
