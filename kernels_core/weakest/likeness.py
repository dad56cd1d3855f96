"""Are the kernel's errors those that an arithmetic makes? That its bound has room for them says little.

Bounds are worst cases: one of a few bits has room for a factor of 1.01 or a missing term. Three looks at the errors
e = (actual - exact) / bound tell the arithmetic from a fault of the same size.

Foreseen (rounded operands, flushed subnormals). The reference is run with its operands so rounded: errors d. The kernel
does the same where, on the n failing elements, the root mean square of e - d is less than a quarter of that of e, and
so much less that n values agree as well by accident with a probability below 2^-12 (the ratio to the power of n); or,
over 64 and more elements, where the cosine of e and d is at least 1/2: it may round one operand of two, or to another
side. Unrelated errors come that near with a probability below 2^-14 (4 standard deviations).

Fewer than 16 elements tell nothing of what follows.

Chains (a violated tensor that is a sum or product itself). Some of its sums are really run under the candidate, one
term after the other in four orders (chains.py): errors r of one way to add. The kernel's errors of the same sums are

    at most twice theirs in the root mean square, alone and about their mean, and in the median at least 1/32 of theirs;
    nowhere, in no element of the tensor, more than four times the largest of theirs;
    in the mean, and in the mean toward zero, within theirs, give or take a quarter of their root mean square.

A factor leans away from zero, a term that is left out of a positive sum leans down and scatters as terms do.

Noise (all other tensors). Against random legal evaluations of the candidate (audit/legal.py) the root mean square and
the median are as above; the errors lean to no side by more than half their root mean square beyond what those do. A few
wrong elements among right ones have a median far below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from kernels_core.audit import evaluated, legal, native
from kernels_core.audit.pieces import Read
from kernels_core.audit.sample import spread, taken
from kernels_core.check import Check
from kernels_core.formats import format_of
from kernels_core.program import Program
from kernels_core.result import Result
from kernels_core.rules.matmul_inputs import narrowed
from kernels_core.weakest import chains
from kernels_core.weakest.chains import PRODUCTS, Sums

Tensor = torch.Tensor
Tensors = Mapping[str, Tensor]

LIMIT = 1 << 14  # elements that are looked at
INDEPENDENT, FEW, BITS = 64, 16, 12.0
EXPLAINED, RELATED = 4.0, 0.5
LARGER, LARGEST, SMALLER, LEANING, SLACK = 2.0, 4.0, 32.0, 0.5, 0.25
RUNS = 2
_CONVOLUTIONS = frozenset(("aten.convolution.default", "aten.convolution_backward.default"))


def bound_of(result: Result) -> Tensor:
    """Return the bound of every element."""
    return result.enclosure.bound_or_zero().expand(result.enclosure.shape)


def root_mean_square(errors: Tensor) -> float:
    """Return the root mean square of the errors that are known, 0 where none is."""
    mean_square = float(errors.square().nanmean())
    return 0.0 if math.isnan(mean_square) else math.sqrt(mean_square)


def _deviation(errors: Tensor) -> float:
    return root_mean_square(errors - errors.mean())


class Errors:
    """The errors of one violated tensor under one candidate."""

    def __init__(self, result: Result, actual: Tensor, here: Tensor) -> None:
        """Take elements that are True in `here` and have a finite, positive bound, at most LIMIT of them."""
        where = torch.nonzero(here.reshape(-1)).reshape(-1)
        index = where[spread(len(where), where.device, LIMIT)]
        mid = taken(result.enclosure.mid, index)
        bound = taken(bound_of(result), index)
        usable = mid.isfinite() & bound.isfinite() & (bound > 0)
        self.index, self.mid, self.bound = index[usable], mid[usable], bound[usable]
        self.result, self.actual, self.own = result, actual, self.of(actual)

    def of(self, value: Tensor) -> Tensor:
        """Return (value - exact) / bound; NaN where the value is."""
        return (taken(value.to(self.mid.device), self.index).to(torch.float64) - self.mid) / self.bound

    def of_index(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return errors, bounds and signs of the exact values at these elements, None where a bound is none."""
        mid = taken(self.result.enclosure.mid, index)
        bound = taken(bound_of(self.result), index)
        if not len(index) or not bool((mid.isfinite() & bound.isfinite() & (bound > 0)).all()):
            return None
        return (taken(self.actual.to(mid.device), index).to(torch.float64) - mid) / bound, bound, mid.sign()

    def foreseen(self, value: Tensor) -> bool:
        """Return True where the errors are those of an evaluation that makes them on purpose."""
        theirs = self.of(value)
        known = theirs.isfinite() & self.own.isfinite()
        own, theirs = self.own[known], theirs[known]
        if not len(own):
            return False
        size, left = root_mean_square(own), root_mean_square(own - theirs)
        if size and len(own) * math.log2(size / max(left, size * 2.0**-40)) >= BITS and left * EXPLAINED < size:
            return True
        cosine = float(torch.dot(own, theirs)) / max(1e-300, float(own.norm() * theirs.norm()))
        return len(own) >= INDEPENDENT and cosine >= RELATED

    def alike(self, evaluations: Sequence[Tensor]) -> bool:
        """Return True where the errors have the size and the lean of those of legal evaluations."""
        runs = [self.of(value) for value in evaluations]
        if len(self.own) < FEW or not self._of_size(self.own, runs):
            return False
        return self._lean(self.own) <= max(self._lean(run) for run in runs) + LEANING

    def chained(self, sums: Sums) -> bool:
        """Return True where the errors of some sums are like those of the same sums, added in one of the ways."""
        own = self.of_index(sums.index)
        if own is None or len(own[0]) < FEW:
            return False
        errors, bound, sign = own
        return any(self._like_these(errors, [run / bound for run in way], sign) for way in sums.errors)

    def _like_these(self, errors: Tensor, runs: Sequence[Tensor], sign: Tensor) -> bool:
        if not self._of_size(errors, runs):
            return False
        if float(self.own.abs().max()) > LARGEST * max(float(run.abs().max()) for run in runs):
            return False
        if _deviation(errors) > LARGER * max(_deviation(run) for run in runs):
            return False
        slack = max(map(root_mean_square, runs)) * (SLACK + 2 / math.sqrt(len(errors)))
        for side in (torch.ones_like(sign), sign):
            means = [float((run * side).mean()) for run in runs]
            if not min(means) - slack <= float((errors * side).mean()) <= max(means) + slack:
                return False
        return True

    @staticmethod
    def _of_size(errors: Tensor, runs: Sequence[Tensor]) -> bool:
        if not len(errors) or not runs or not bool(errors.isfinite().all()):
            return False
        if root_mean_square(errors) > LARGER * max(map(root_mean_square, runs)):
            return False
        return float(errors.abs().median()) * SMALLER >= min(float(run.abs().nanmedian()) for run in runs)

    def _lean(self, errors: Tensor) -> float:
        """Return by how much the errors lean to one side, or toward or away from zero, less what is chance."""
        rms = root_mean_square(errors)
        if not rms:
            return 0.0
        means = [float(part.nanmean()) for part in (errors, errors * self.mid.sign())]
        return max(map(abs, means)) / rms - 2 / math.sqrt(len(errors))


def foresees(check: Check, program: Program, inputs: Tensors, errors: Mapping[str, Errors], knob: str) -> bool:
    """Return True where running the reference with operands so rounded (or flushed) foresees the errors.

    Args:
        check: under the candidate.
        program: of outputs, or of outputs and gradients.
        inputs: of the program.
        errors: of the violated tensors, by name.
        knob: "matmul_input" or "flush_subnormals".
    """
    reads = [_flushed] if knob == "flush_subnormals" else _roundings(check.profile.matmul_input)
    return any(_explains_all(check, program, inputs, errors, read) for read in reads)


def _explains_all(check: Check, program: Program, inputs: Tensors, errors: Mapping[str, Errors], read: Read) -> bool:
    try:
        values = evaluated(
            check, program, inputs, lambda part, given: native.evaluate(part, given, check.profile, read)
        )
    except (RuntimeError, NotImplementedError, TypeError):  # PyTorch has no kernel for some dtype
        return False
    return all(name in values and found.foreseen(read("", values[name])) for name, found in errors.items())


def _roundings(name: str) -> list[Read]:
    def rounded(operation: str, operand: Tensor) -> Tensor:
        if operation not in PRODUCTS | _CONVOLUTIONS or operand.dtype not in (torch.float32, torch.float64):
            return operand
        return narrowed(operand, name).to(operand.dtype)

    def to_nearest(operation: str, operand: Tensor) -> Tensor:
        if operation not in PRODUCTS | _CONVOLUTIONS or operand.dtype is not torch.float32:
            return operand
        bits = operand.contiguous().view(torch.int32)
        return (bits + 0x1000).bitwise_and_(~0x1FFF).view(torch.float32)

    return [rounded, to_nearest] if name == "tf32" else [rounded]


def _flushed(operation: str, operand: Tensor) -> Tensor:
    if not operand.dtype.is_floating_point:
        return operand
    small = operand.abs().to(torch.float64) < format_of(operand.dtype).smallest_normal
    return operand.masked_fill(small, 0.0)


def is_alike(check: Check, program: Program, inputs: Tensors, errors: Mapping[str, Errors]) -> bool:
    """Return True where the errors of every tensor are of the size and lean of legal evaluations."""
    sums = chains.of(check, program, inputs, errors)
    if not all(found.chained(sums[name]) for name, found in errors.items() if name in sums):
        return False
    rest = {name: found for name, found in errors.items() if name not in sums}
    if not rest:
        return True
    draws = [legal.Evaluation(check.profile, seed, False) for seed in range(RUNS)]
    runs = [evaluated(check, program, inputs, draw.evaluate) for draw in draws]
    return all(found.alike([run[name] for run in runs]) for name, found in rest.items())
