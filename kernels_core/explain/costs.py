"""What a check will take, estimated from its program: time by counting operations, memory by what is alive at once.

Nothing of the program is evaluated. Two rates of this machine are measured in a few milliseconds: one multiply-add of a
float64 matrix product, and one element of a float64 operation on a tile. The factors are what a check does of each:
bounding a product takes a second one, |A| |B|, and bounding an elementwise operation some dozens of passes over its
tile, exponentials and the decision among them. Both were fitted to `benchmarks/cost.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable

import torch

from kernels_core.explain.granted import moves, short, terms
from kernels_core.filter.fusion import fused
from kernels_core.filter.tiles import TILE_ELEMENTS, schedule
from kernels_core.program import Meta, Program, Ref, Step

_PRODUCTS_EACH = 2.2  # float64 products per product of the program
_PASSES_EACH = 60.0  # passes over a tile per step, an exponential counted as a dozen of them
_STEP_SECONDS = 1e-3  # tracing and Python's overhead
_MID_AND_BOUND = 16  # bytes of an element that is kept
_DECIDING = 16  # and of one that is decided
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "convolution", "addbmm", "convolution_backward")


@dataclasses.dataclass(frozen=True)
class Cost:
    """An estimate, good within a factor of a few.

    Attributes:
        seconds: of the plain comparison: tracing, running the reference in float64 with its bounds, deciding.
        bytes: of memory at the worst moment, the kernel's own not counted.
        multiply_adds: of the matrix products of one float64 evaluation.
    """

    seconds: float
    bytes: int
    multiply_adds: int


def estimate(program: Program) -> Cost:
    """Return what one evaluation with bounds takes, for the threads that PyTorch has."""
    steps = [step for step in program.steps if step.op is not None]
    products = sum(_multiply_adds(step) for step in steps)
    passes = [step for step in fused(program).steps if step.op is not None and not moves(step)]
    elements = sum(max(_elements(step.metas), _elements(step.operand_metas)) for step in passes)
    seconds = _STEP_SECONDS * len(steps) + _PRODUCTS_EACH * products * product_rate()
    seconds += _PASSES_EACH * elements * elementwise_rate()
    return Cost(seconds, peak_bytes(program), products)


def _multiply_adds(step: Step) -> int:
    return step.meta.numel * terms(step) if short(step) in _PRODUCTS else 0


def _elements(metas: Iterable[Meta | None]) -> int:
    return sum(meta.numel for meta in metas if meta is not None)


def peak_bytes(program: Program) -> int:
    """Return the most memory that results take at once: those used outside of the run that makes them."""
    program = fused(program)
    runs = schedule(program)
    uses = [run.outputs_used(program) for run in runs]
    last: dict[Ref, int] = {ref: len(runs) for ref in program.outputs.values() if ref is not None}
    for number, run in enumerate(runs):
        for ref in (ref for step in (*run.steps, *run.closing) for ref in step.operands):
            last[ref] = max(number, last.get(ref, 0))
    metas = {Ref(s.number, i): m for s in program.steps for i, m in enumerate(s.metas) if m is not None}
    alive = {Ref(step): metas[Ref(step)].numel * 8 for step in program.inputs.values()}  # exact: no bound
    peak = sum(alive.values())
    for number, used in enumerate(uses):
        alive |= {ref: metas[ref].numel * _MID_AND_BOUND for ref in used if ref in metas}
        peak = max(peak, sum(alive.values()))
        alive = {ref: size for ref, size in alive.items() if last.get(ref, 0) > number}
    return peak + _DECIDING * sum(meta.numel for meta in program.output_metas.values())


@functools.cache
def product_rate() -> float:
    """Return the seconds of one multiply-add of a float64 matrix product here."""
    size = 256
    matrix = torch.ones(size, size, dtype=torch.float64)
    return _fastest(lambda: matrix @ matrix) / size**3


@functools.cache
def elementwise_rate() -> float:
    """Return the seconds of one element of a float64 operation on a tile here."""
    tile = torch.ones(TILE_ELEMENTS, dtype=torch.float64)
    return _fastest(lambda: tile.mul_(1.0)) / TILE_ELEMENTS


def _fastest(work: Callable[[], object]) -> float:
    found = math.inf
    for _ in range(5):
        start = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - start)
    return found
