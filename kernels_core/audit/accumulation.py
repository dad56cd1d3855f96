"""The error of a strictly sequential sum, measured and modelled on a sample of the step's results.

For terms t_1 ... t_n with partial sums p_k, each addition rounds by at most u |p_k|. Taken as independent and uniform,
the error has

    rms = u / sqrt(3) sqrt(sum_{k > 1} p_k^2 + sum t_k^2 + s^2)

(roundings of additions, of products, and one of the result; s^2 with u of the result's format). Independence fails for
equal terms, whose roundings drift, so the sum is also really run, in float32, in several orders: ascending, descending,
shuffled, and in strides of 2 to 64, as lanes read it, and in the ways that the profile adds (profiled.py). The largest
rms, as a fraction of the granted worst case, makes the noise of the whole step. Where the errors of a real run share
their sign, so does the noise. Truncated operands and accumulators shrink all results alike, of either sign: with errors
e of the exact sums s, the largest factor <e, s> / <s, s> of a declared way is one that coherent evaluations share.

The sums of a step may be of different kinds: one column among many that are centred has a mean, and its partial sums,
with a sequential run's errors, are sqrt(n) times as large as those of the others. So the noise of each sum is at least
sqrt(3) times its own rms by the formula above, the partial sums of a product being taken after each quarter of its
terms. Where none are at hand (convolutions) all terms are taken for s / n: p_k = k s / n, u / sqrt(3) |s| sqrt(n / 3).

Softmax and its relatives are no bare sums: from their grant only the part (n - 1) u that belongs to the sum, and the
rescalings of a streaming pass, shrink to their square roots (all terms are positive, p_k <= s). Their derivatives are
p (g - t) with t = sum g p, and g - p t with t = sum g: of their grant the part |p| D, D that of t, shrinks to |p| times
the noise of t, which is that of any sum of these terms.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernels_core.audit import profiled
from kernels_core.audit.sample import taken
from kernels_core.audit.terms import ACCUMULATING, BACKWARD, Terms, softmax_terms, summed_by
from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import Arithmetic, Local
from kernels_core.program import Step
from kernels_core.rules.cones import normal_dims
from kernels_core.rules.softmax import BLOCK, exp_error

STRIDES = (2, 4, 8, 16, 32, 64)
_DRIFT = 0.5  # |mean| / rms of a real run from which its errors share their sign

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Noise:
    """How far a legal result of one step lies from the exact one.

    Attributes:
        amplitude: of the shape of the result; at most the step's grant.
        accumulated: True where the step is a sum, whose errors average out in themselves.
        coherent: True where all elements err to the same side.
        factor: by how much the declared arithmetic moves all elements in proportion to their size.
    """

    amplitude: Tensor
    accumulated: bool = False
    coherent: bool = False
    factor: float = 0.0


def noise_of(
    step: Step, value: Enclosure, operands: Sequence[Tensor], arithmetic: Arithmetic, output: int = 0
) -> Noise:
    """Return the noise of one step whose operands are exact.

    Args:
        step: the operation.
        value: its result with what it grants.
        operands: float64 values, in the order of `step.operands`.
        arithmetic: of the evaluation.
        output: which of the step's results `value` is.
    """
    bound = value.bound_or_zero().expand(value.shape)
    bound = torch.where(bound.isfinite(), bound, 0.0)
    if step.name in _SOFTMAX:
        return Noise(_softmax(step, value.mid, bound, Local(arithmetic, step)))
    if step.name in BACKWARD and value.mid.dim() and value.mid.numel():
        return Noise(_softmax_backward(step, operands, bound, Local(arithmetic, step)))
    if step.name not in ACCUMULATING or not value.mid.numel():
        return Noise(bound)
    local = Local(arithmetic, step)
    terms = summed_by(step, operands, local, output)
    if terms.values.shape[1] < 2:
        return Noise(bound)
    amplitude, coherent, factor = _of_sums(bound, value.mid, terms, local)
    return Noise(amplitude, True, coherent, factor)


def _of_sums(granted: Tensor, total: Tensor, terms: Terms, local: Local) -> tuple[Tensor, bool, float]:
    """Return the noise of all sums, of the shape of their grants, whether errors drift to one side, and the factor."""
    share, coherent, factor = _share(terms, taken(granted, terms.index), local)
    n, partial = terms.values.shape[1], terms.partial
    if partial is None:
        own = total.abs() * math.sqrt(n / 3)
    else:
        last, ascending = partial[:, -1], torch.linalg.vector_norm(partial, dim=1).square_()
        descending = ascending + last * (partial.shape[1] * last - 2 * partial.sum(1))  # of s - p_k
        squares = torch.maximum(ascending, descending).mul_(n / partial.shape[1])
        own = squares.sqrt_().reshape(granted.shape) / terms.divisor
    own = own.mul_(local.u_sum).nan_to_num_(nan=0.0)
    return torch.minimum(granted, torch.maximum(granted * share, own)), coherent, factor


def _share(terms: Terms, bound: Tensor, local: Local) -> tuple[float, bool, float]:
    """Return sqrt(3) rms / grant (an amplitude of uniform noise), whether the errors drift to one side, the factor."""
    usable = (bound > 0) & terms.values.isfinite().all(1)
    if not bool(usable.any()):
        return 1.0, False, 0.0
    values, bound = terms.values[usable], bound[usable]
    read = None if terms.read is None else terms.read[usable]
    worst, coherent = _rms(_modelled(values, terms, local) / bound), False
    declared = list(_declared(values, read, terms, local))
    for error in itertools.chain(_measured(values, terms, local), declared):
        relative = error / bound
        rms = _rms(relative)
        if rms > worst:
            worst, coherent = rms, abs(float(relative.mean())) > _DRIFT * rms
    exact = values.sum(1) / terms.divisor
    return math.sqrt(3) * worst, coherent, max((_common(error, exact) for error in declared), default=0.0)


def _common(errors: Tensor, exact: Tensor) -> float:
    """Return the factor by which errors follow the exact sums, 0 where these are zero."""
    size = exact.abs().max()
    unit = exact / size
    return abs(float((errors / size * unit).sum() / unit.square().sum())) if 0 < float(size) < math.inf else 0.0


def _rms(errors: Tensor) -> float:
    return math.sqrt(float(errors.square().mean()))


def _modelled(values: Tensor, terms: Terms, local: Local) -> Tensor:
    partial = values.cumsum(1)
    squares = partial[:, 1:].square().sum(1)
    if terms.products:
        squares = squares + values.square().sum(1)
    total = partial[:, -1].square()
    return (squares * local.u_sum**2 + total * local.u**2).div_(3).sqrt_() / terms.divisor


def _measured(values: Tensor, terms: Terms, local: Local) -> Iterator[Tensor]:
    """Yield the errors of real sequential sums in float32, in several orders; none for float64."""
    if local.compute is not torch.float32:
        return
    narrow = values.to(torch.float32).cpu().numpy()
    exact = values.sum(1) if terms.products else torch.from_numpy(narrow).double().sum(1).to(values.device)
    for order in _orders(narrow.shape[1]):
        total = torch.from_numpy(np.add.accumulate(narrow[:, order], axis=1)[:, -1].copy())
        yield (total.to(local.dtype).double().to(exact.device) - exact) / terms.divisor


def _declared(values: Tensor, read: Tensor | None, terms: Terms, local: Local) -> Iterator[Tensor]:
    """Yield the errors of real sums in the ways that the profile adds to the compute format."""
    exact, flushes = values.sum(1), local.flushes
    for total in profiled.sums(values, read, local, products=terms.products):
        stored = total.to(local.compute).to(local.dtype)
        yield ((profiled.without_subnormals(stored) if flushes else stored).double() - exact) / terms.divisor


def _orders(n: int) -> Iterator[np.ndarray]:
    ascending = np.arange(n)
    yield ascending
    yield ascending[::-1]
    yield np.random.default_rng(n).permutation(n)
    for stride in STRIDES:
        if stride < n:
            yield np.concatenate([ascending[lane::stride] for lane in range(stride)])


_SOFTMAX: Mapping[str, Callable[[Tensor], Any]] = {
    "aten._softmax.default": lambda mid: mid.abs(),
    "aten._log_softmax.default": torch.ones_like,
    "aten.logsumexp.default": torch.ones_like,
}


def _softmax(step: Step, mid: Tensor, bound: Tensor, local: Local) -> Tensor:
    shape = step.operand_metas[0].shape
    n = math.prod(shape[d] for d in normal_dims(step.argument(1, "dim"), len(shape)))
    u, blocks = local.u_acc, -(-n // BLOCK)
    rescaling = exp_error(local) + u
    spared = (blocks - math.sqrt(blocks)) * rescaling + (max(n - 1, 0) - math.sqrt(max(n - 1, 0))) * u
    amplitude = bound - _SOFTMAX[step.name](mid) * spared
    return torch.maximum(amplitude, bound / math.sqrt(max(1, n)))


def _softmax_backward(step: Step, operands: Sequence[Tensor], bound: Tensor, local: Local) -> Tensor:
    """Return the grant less |p| D, with |p| times the noise of t in its place (rules/softmax_backward.py)."""
    terms, p = summed_by(step, operands, local, 0), operands[1]
    n = terms.values.shape[1]
    if n < 2:
        return bound
    grown, weight = (local.dot_error(n), p.abs()) if terms.products else (local.sum_error(n), p.exp())
    granted = softmax_terms(step, operands).abs().sum(int(step.args[2]), keepdim=True) * grown
    noise, *_ = _of_sums(granted, granted, terms, local)
    spared = weight * (granted - noise)
    return torch.where(spared.isfinite(), bound - spared, bound).clamp_(min=0.0)
