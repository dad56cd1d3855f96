"""Real sums in the arithmetic that a profile declares: what an honest kernel of that profile may show.

The sampled sums are run once in each way that the profile adds to float32: a narrower accumulator, terms of rounded
operands, parts that are rounded to the result's format, a truncating accumulator of blocks, and subnormal terms and
partial sums taken for zero. Each is an evaluation that the profile grants, so its errors are those of a correct kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels_core.filter.arithmetic import Local, compute_format
from kernels_core.formats import format_of
from kernels_core.profiles.blocks import BlockAccumulator

Tensor = torch.Tensor


def sums(terms: Tensor, read: Tensor | None, local: Local, *, products: bool) -> Iterator[Tensor]:
    """Yield the sums of the rows of `terms`, float64, once in each declared way.

    Args:
        terms: float64 [sums, n].
        read: the same of operands as the kernel may read them, None where that is nothing else.
        local: of the step.
        products: True where the terms are products, which alone are split or added in blocks.
    """
    profile = local.profile
    if profile is None:
        return
    accumulator = getattr(torch, profile.accumulate) if profile.accumulate else local.compute
    given = terms if read is None else read
    if read is not None or profile.accumulate:
        yield _sequential(given, accumulator)
    if profile.flush_subnormals and _may_be_subnormal(given, accumulator):
        yield _sequential(given, accumulator, flushes=True)
    if products and profile.split_k > 1:
        yield _split(given, profile.split_k, local.dtype)
    if products and profile.blocks and local.compute is torch.float32:
        for block in {profile.blocks[kind] for kind in ("half", "single")}:
            yield _blocks(given, block)


def _sequential(terms: Tensor, dtype: torch.dtype, *, flushes: bool = False) -> Tensor:
    kept = without_subnormals if flushes else _as_it_is
    columns = kept(terms.to(dtype)).T.contiguous()
    total = columns[0].clone()
    for column in columns[1:]:
        total = kept(total.add_(column))
    return total.to(torch.float64)


def _may_be_subnormal(terms: Tensor, dtype: torch.dtype) -> bool:
    """Return True where a term or partial sum may be subnormal: all are multiples of the smallest term's last place."""
    fmt, sizes = format_of(dtype), terms.abs()
    return bool(((sizes < fmt.smallest_normal / fmt.unit_roundoff) & (sizes != 0)).any())


def without_subnormals(values: Tensor) -> Tensor:
    """Return values with zeros in the place of subnormal ones."""
    small = values.abs().to(torch.float64) < format_of(values.dtype).smallest_normal
    return values.masked_fill(small, 0.0)


def _as_it_is(values: Tensor) -> Tensor:
    return values


def _split(terms: Tensor, parts: int, dtype: torch.dtype) -> Tensor:
    total: Tensor | None = None
    for part in terms.tensor_split(parts, dim=1):
        rounded = part.sum(1).to(compute_format(dtype)).to(dtype)
        total = rounded if total is None else total + rounded
    return terms.sum(1) if total is None else total.to(torch.float64)


def _blocks(terms: Tensor, acc: BlockAccumulator) -> Tensor:
    """Return the rows' sums by profiles/blocks.py, with a product's own exponent in the place of its operands'."""
    total = terms.new_zeros(len(terms))
    outer = total.clone()
    for number, start in enumerate(range(0, terms.shape[1], acc.block)):
        if acc.promote and number and start % acc.promote == 0:
            outer, total = (outer + total).to(torch.float32).to(torch.float64), torch.zeros_like(total)
        block = torch.cat([terms[:, start : start + acc.block], total.unsqueeze(1)], 1)
        quantum = _power(block.abs().amax(1)) * 2.0**-acc.fraction_bits
        total = (torch.trunc(block / quantum.unsqueeze(1)) * quantum.unsqueeze(1)).sum(1)
        quantum = _power(total.abs()) * 2.0**-acc.output_bits
        total = torch.trunc(total / quantum) * quantum
    return outer + total


def _power(x: Tensor) -> Tensor:
    """Return 2^(exponent of x), 1 where x is zero."""
    return torch.where(x == 0, 1.0, torch.exp2(torch.floor(torch.log2(x))))
