"""What a block-aligned truncating accumulator grants to a sum of K products (profiles/blocks.py).

Products t_k = a_k b_k in blocks of N, in any order, c_j the sum that goes on after block j, B = ceil(K / N) blocks, in
one chain or in several whose results are added in float32. With u = 2^-24 and E_j the largest exponent of block j:

    |error| <= sum_j (n_j 2^(E_j - F) + c 2^(E_j - F) + 2^-p |c_j|)

for n_j products and, from the second block on, an addend: each is cut by less than 2^(E_j - F), and the exact sum by
less than 2^-p of itself. A block that starts a chain cuts no addend; its chain is added in float32 instead, rounded by
u of the sum, so that c = max(1, 2^F u) covers both.

Every cut is toward zero. By induction each c_j lies between minus the sum of the negative and the sum of the positive
products so far, in any order:

    |c_j| <= C = max(sum of positive, sum of |negative| products) = (sum |t| + |sum t|) / 2
    |c_j| <= N j T' for T' = max |t|;   2^(E_j) <= max(T, |c_{j-1}|),  T = max 2^(exponent of a + exponent of b)

and the whole error is at most C as well. Cuts of positive products lower the sum and those of negative ones raise it,
so together they cannot exceed those of the more frequent sign, m = max(#positive, #negative) products:

    |error| <= min(N sum_j 2^E_j, m max_j 2^E_j) 2^-F + c 2^-F sum_{j>1} 2^E_j + 2^-p (|s| + sum_{j<B} |c_j|)

with |s| the result. Sums over j of min(C, N j T') are arithmetic series up to where C is reached. An addend c_0 is one
term more, present in the first block; exponents of subnormal operands count as those of the smallest normal number.

With promotion after P products, chains of P / N blocks start at zero and are added in float32: the sums of |c_j| over
all chains are at most sum |t| =: S for each place in the chain, and ceil(K / P) - 1 additions cost u S each.

Derived here; the rule per block is that of the sources in profiles/blocks.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.formats import (
    BFLOAT16,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    Format,
    format_of,
    is_in,
    ulp,
)
from kernels_core.profiles import Profile
from kernels_core.profiles.blocks import BlockAccumulator

Tensor = torch.Tensor
_U = FLOAT32.unit_roundoff
_FEW = 1 << 21  # products small enough in number for the largest of each sum to be looked for itself


@dataclasses.dataclass(frozen=True)
class Sums:
    """What is known of the sums of products of one step, every tensor of the result's shape or ().

    Attributes:
        inner: K.
        size: S, upper bound of sum |t|.
        reach: C.
        last: upper bound of |s|.
        largest: T'.
        scale: T.
        frequent: m, upper bound.
        start: |c_0|; a zero where there is none.
        clamped: True where subnormal operands may lift T above T'.
        moved: True where an operand is not exact, so that C of the legal operands may be less than T of the largest.
    """

    inner: int
    size: Tensor
    reach: Tensor
    last: Tensor
    largest: Tensor
    scale: Tensor
    frequent: Tensor | float
    start: Tensor
    clamped: bool
    moved: bool


def accumulator_of(local: Local, operands: tuple[Enclosure, Enclosure]) -> BlockAccumulator | None:
    """Return the accumulator that the profile declares for a product of these operands, None where it has none."""
    profile = local.profile
    if profile is None or not profile.blocks or local.compute is not torch.float32:
        return None
    found = profile.blocks[_kind(profile, local.step.operand_metas[-1].dtype, operands)]
    return dataclasses.replace(found, block=profile.height_block) if profile.height_block else found


def _kind(profile: Profile, dtype: torch.dtype, operands: tuple[Enclosure, Enclosure]) -> str:
    """Return "half", "single" or "float8" (profiles/tensorcore.py, fp8.py)."""
    if dtype.itemsize < 4:
        return "half" if dtype.itemsize == 2 else "float8"
    declared = profile.matmul_input or profile.convolution_input
    if declared or profile.blocks["single"].fraction_bits < profile.blocks["half"].fraction_bits:
        return "single"  # TF32 or float8 operands: the shortest blocks, the fewest bits
    return "half" if all(_held(x, FLOAT16) or _held(x, BFLOAT16) for x in operands) else "single"


def _held(x: Enclosure, fmt: Format) -> bool:
    """Return True where the operand is exact and the format has all of its values."""
    return x.bound is None and bool(is_in(x.mid, fmt).all())


def block_error(
    local: Local,
    accumulator: BlockAccumulator,
    multiply: Callable[[Tensor, Tensor], Tensor],
    operands: tuple[Enclosure, Enclosure],
    inner: int,
    exact: Tensor,
    start: Tensor | None = None,
) -> Tensor:
    """Return the bound of the module for `multiply(a, b)`, the movement of the operands by their bounds not included.

    Args:
        local: of the step.
        accumulator: see `accumulator_of`.
        multiply: the bilinear operation on float64 tensors.
        operands: with their bounds.
        inner: K.
        exact: upper bound of |sum t| (with the addend) for every legal operand.
        start: upper bound of |c_0|, None where the sum starts at zero.
    """
    if inner == 0:
        return torch.zeros_like(exact)
    a, b = (x.magnitude_upper() for x in operands)
    begin = torch.zeros((), dtype=torch.float64, device=exact.device) if start is None else start
    size = (multiply(a, b) + begin) * (INFLATE * (1 + (inner + 8) * 2.0**-52))
    normal = _smallest_normal(local, operands[0]), _smallest_normal(local, operands[1])
    largest, scale = _largest(multiply, a, b, normal)
    clamped = any(bool(((x > 0) & (x < smallest)).any()) for x, smallest in zip((a, b), normal, strict=True))
    reach = (size + exact) * (0.5 * INFLATE)
    sums = Sums(inner, size, reach, exact, largest, scale, _frequent(multiply, operands, inner), begin, clamped,
                any(x.bound is not None for x in operands))  # fmt: skip
    found = _promoted(accumulator, sums) if 0 < accumulator.promote < inner else _chained(local, accumulator, sums)
    blocks = -(-inner // accumulator.block)
    found = found * INFLATE + (inner + 2 * blocks) * local.eta_sum
    return torch.where(found.isnan(), torch.inf, found)


def _chained(local: Local, acc: BlockAccumulator, s: Sums) -> Tensor:
    cut, out = 2.0**-acc.fraction_bits, 2.0**-acc.output_bits
    n, splits = min(acc.block, s.inner), local.profile.split_k if local.profile is not None else 1
    blocks = -(-s.inner // acc.block) + splits - 1
    reach = s.reach * (1 + blocks * _U)  # chains are added in float32, rounded to nearest
    scale = s.scale if s.clamped else torch.minimum(s.scale, s.size)  # T <= |t|, for the largest legal operands
    reach = torch.maximum(reach, scale) if s.moved else reach
    scale = scale if s.moved or s.clamped else torch.minimum(scale, reach)
    first = torch.maximum(scale, s.start)  # 2^E of the first block
    later = _series(reach, s.start, acc.block * s.largest, blocks - 1)
    steps = later if not s.clamped else later + (blocks - 1) * scale
    widest = torch.maximum(first, reach) if blocks > 1 else first
    products = torch.minimum(n * (first + steps), s.frequent * widest)
    addend = max(1.0, _U / cut) * (steps + torch.where(s.start > 0, torch.maximum(scale, s.start), 0.0))
    found = cut * (products + addend) + out * (s.last + later)
    return torch.minimum(found, reach)


def _promoted(acc: BlockAccumulator, s: Sums) -> Tensor:
    cut, out = 2.0**-acc.fraction_bits, 2.0**-acc.output_bits
    chains, length = -(-s.inner // acc.promote), -(-acc.promote // acc.block)
    scale = chains * s.scale
    scale = scale if s.clamped else torch.minimum(scale, s.size)
    partial = _series(s.size, torch.zeros_like(s.size), chains * acc.block * s.largest, length - 1)
    steps = partial + (length - 1) * scale if s.clamped else partial
    found = cut * (acc.block * (scale + steps) + steps) + out * (s.size + partial)
    return found + (chains + 1) * _U * (s.size + found)


def _series(limit: Tensor, start: Tensor, step: Tensor, count: int) -> Tensor:
    """Return an upper bound of the sum of min(limit, start + i step) over i = 1 ... count."""
    if count <= 0:
        return torch.zeros_like(limit)
    below = ((limit - start) / step).floor().nan_to_num(nan=0.0, posinf=count, neginf=0.0).clamp(0, count)
    return below * start + step * (below * (below + 1) / 2) + (count - below) * limit


def _frequent(
    multiply: Callable[[Tensor, Tensor], Tensor], operands: tuple[Enclosure, Enclosure], inner: int
) -> Tensor | float:
    """Return m: the larger number of products of one sign."""
    a, b = operands
    if a.bound is not None or b.bound is not None or inner >= 1 << 23:
        return float(inner)
    signs = multiply(a.mid.sign().to(torch.float32), b.mid.sign().to(torch.float32)).abs_().to(torch.float64)
    return (signs + inner).mul_(0.5)


def _largest(
    multiply: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, normal: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Return T' and T: exactly for few products, else from the largest of each row, each column or each operand."""
    powers = [_power_of_two(x, floor) for x, floor in zip((a, b), normal, strict=True)]
    if multiply not in (torch.mm, torch.bmm):
        return a.max() * b.max(), powers[0].max() * powers[1].max()
    if a.shape[-2] * b.numel() <= _FEW:
        return _of_each(a, b), _of_each(*powers)
    return (
        a.amax(-1, keepdim=True) * b.amax(-2, keepdim=True),
        powers[0].amax(-1, keepdim=True) * powers[1].amax(-2, keepdim=True),
    )


def _of_each(a: Tensor, b: Tensor) -> Tensor:
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).amax(-2)


def _power_of_two(x: Tensor, smallest_normal: float) -> Tensor:
    """Return 2^(exponent of x) for x >= 0, at least the smallest normal number; 0 where x is 0."""
    return torch.where(x == 0, 0.0, (ulp(x, FLOAT64) * 2.0**52).clamp_(min=smallest_normal))


def _smallest_normal(local: Local, x: Enclosure) -> float:
    """Return the smallest normal number of the narrowest format that the kernel may hold the operand in."""
    dtype = local.step.operand_metas[-1].dtype
    if dtype.itemsize < 4:
        return format_of(dtype).smallest_normal
    low = torch.where(x.mid == 0, torch.inf, x.mid.abs()).min() if x.mid.numel() else math.inf
    for fmt in (FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT16):
        if float(low) < fmt.smallest_normal and _held(x, fmt):
            return fmt.smallest_normal
    return FLOAT32.smallest_normal
