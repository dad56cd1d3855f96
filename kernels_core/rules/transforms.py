"""The discrete Fourier transform of a complex tensor that is carried as two real ones.

y_k = s sum_j x_j exp(-+ 2 pi i j k / n) is a sum of terms of the moduli |x_j|; s is 1, 1/sqrt(n) or 1/n. A fast one
is a tree of such sums over the prime factors p of n: an output of a stage is the sum of p inputs times numbers of
modulus 1, known to u. With the product of two complex numbers good to sqrt(5) u (Brent, Percival and Zimmermann, Math.
Comp. 76 (2007)), the twiddle factor to 1.5 u and p - 1 additions, a stage errs by (p + 4) u of the sum of the moduli
that enter it, so by induction (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2, element by
element)

    |y' - y| <= ((1 + sum_p (p + 4) u + 10 u) - 1) sum_j |x_j|,

10 u standing for the stage that makes a real transform from a complex one of half the length. A prime beyond 13 may be
done as a convolution of length m < 4 p (Bluestein): three transforms, their errors multiplied by the mean modulus of
the transformed chirp, which is at most sqrt(2 p) (Cauchy and Schwarz).
"""

from __future__ import annotations

import math
from typing import Any

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotRationalError
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import reduction_cone
from kernels_core.rules.record import Family, Rule

Tensor = torch.Tensor
NORMS = ("backward", "ortho", "forward")  # of torch.fft, by ATen's code: none, 1/sqrt(n), 1/n


def stages(n: int) -> float:
    """Return the relative error of a transform of length n in units of u, without the 10 of a real one."""
    total, p = 0.0, 2
    while n > 1:
        while n % p == 0:
            direct = p + 4.0
            bluestein = (3 * 6 * math.log2(4 * p) + 10) * math.sqrt(2 * p)
            total += direct if p <= 13 else max(direct, bluestein)
            n //= p
        p = p + 1 if p * p <= n else max(n, p + 1)
    return total


def dft(local: Local, re: Enclosure, im: Enclosure, dim: Any, normalization: int, forward: bool) -> Any:
    """Return real and imaginary part."""
    dims = [d % re.mid.dim() for d in dim]
    count = math.prod(re.shape[d] for d in dims)
    scale = (1.0, 1 / math.sqrt(max(1, count)), 1 / max(1, count))[normalization]
    function = torch.fft.fftn if forward else torch.fft.ifftn
    value = function(torch.complex(re.mid, im.mid), dim=dims, norm="backward" if forward else "forward") * scale
    moduli = re.mid.abs() + im.mid.abs()
    propagated = (re.bound_or_zero() + im.bound_or_zero()).expand(re.shape)
    relative = (sum(stages(re.shape[d]) for d in dims) + 10 + 3) * local.u_acc
    relative *= 1 + relative
    total = ((moduli + propagated) * relative + propagated).sum(dims, keepdim=True)
    bound = total * (scale * INFLATE * (1 + count * 2.0**-52)) + (total > 0) * (count * local.eta_acc)
    bound = bound.expand(re.shape)
    unknown = ~value.real.isfinite() | ~value.imag.isfinite() | bound.isnan()
    bound = torch.where(unknown, torch.inf, bound)
    return [Enclosure(torch.where(unknown, torch.nan, part), bound) for part in (value.real, value.imag)]


def _dims(call: Any) -> list[int]:
    rank = len(call.meta.shape)
    return sorted(d % rank for d in call.step.args[2])


def _cone(call: Any) -> list[np.ndarray]:
    dims, shape = _dims(call), call.meta.shape
    coordinates = np.unravel_index(call.index, shape)
    kept = [d for d in range(len(shape)) if d not in dims]
    place = np.zeros(len(call.index), dtype=np.int64)
    for d in kept:
        place = place * shape[d] + coordinates[d]
    group = reduction_cone(dims, call.step.operand_metas[0], place)
    return [group, group]


def _exact(call: Any, re: Any, im: Any) -> Any:
    if call.numbers.rational:
        raise NotRationalError
    dims, shape, sign = _dims(call), call.meta.shape, -1 if call.step.args[4] else 1
    coordinates = np.unravel_index(call.index, shape)
    sizes = [shape[d] for d in dims]
    places = np.indices(sizes).reshape(len(sizes), -1)
    values = np.empty(len(call.index), dtype=object)
    for k in range(len(call.index)):
        total = flint.arb(0)
        for j in range(places.shape[1]):
            turn = sum((flint.fmpq(2 * int(coordinates[d][k]) * int(p[j]), n)
                        for d, p, n in zip(dims, places, sizes, strict=True)), flint.fmpq(0))  # fmt: skip
            cosine, sine = flint.arb.cos_pi_fmpq(turn), flint.arb.sin_pi_fmpq(turn) * sign
            first, second = (cosine, -sine) if call.output == 0 else (sine, cosine)
            total = total + re[k, j] * first + im[k, j] * second
        count = math.prod(sizes)
        values[k] = (total, total / flint.arb(count).sqrt(), total / count)[call.step.args[3]]
    return values


FAMILY = Family()
FAMILY.add(Rule("exactref.dft.default", dft, _cone, _exact, classed=True))
