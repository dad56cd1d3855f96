"""The sums that a tensor is made of, really run in the arithmetic of a candidate, in several orders.

Only tensors that a sum, mean or matrix product returns (times the upstream gradient, `exactref.factored`) have such
runs: what is computed from sums has errors of other steps as well. A narrower accumulator, terms of rounded operands,
parts rounded to the result's format and truncating blocks are run by audit/profiled.py; where a candidate adds none of
these to float32, float32 is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernels_core.audit import profiled
from kernels_core.audit.native import by_output, walk
from kernels_core.audit.terms import Terms, summed_by
from kernels_core.check import Check
from kernels_core.enclosure import Enclosure, exactly
from kernels_core.filter.arithmetic import Arithmetic, Local
from kernels_core.filter.evaluation import evaluate_step
from kernels_core.filter.tiles import Run
from kernels_core.program import Program, Ref, Step

Tensor = torch.Tensor
LANES = 8
PRODUCTS = frozenset(f"aten.{name}.default" for name in ("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv"))
_CHAINED = frozenset(("aten.mm.default", "aten.bmm.default"))
_REDUCED = frozenset(("aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim"))


@dataclasses.dataclass(frozen=True)
class Sums:
    """Some sums of a tensor.

    Attributes:
        index: which elements.
        errors: of these, for each way to add that the profile grants, in each order.
    """

    index: Tensor
    errors: tuple[tuple[Tensor, ...], ...]


def of(check: Check, program: Program, inputs: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Sums]:
    """Return the sums of those tensors that are sums.

    Args:
        check: under the candidate.
        program: of outputs, or of outputs and gradients.
        inputs: of the program.
        names: of the tensors.
    """
    steps = {name: _summing_step(program, name) for name in names}
    wanted = {number for number in steps.values() if number is not None}
    if not wanted or check.declared_program is not None:
        return {}
    found = _recorded(program.only(list(names)), inputs, Arithmetic(check.profile), wanted)
    return {name: found[number] for name, number in steps.items() if number in found}


def _summing_step(program: Program, name: str) -> int | None:
    ref, steps = program.outputs[name], {step.number: step for step in program.steps}
    while ref is not None and steps[ref.step].name == "exactref.factored":
        ref = steps[ref.step].operands[0]
    known = ref is not None and steps[ref.step].name in _CHAINED | _REDUCED and steps[ref.step].meta.numel
    return ref.step if ref is not None and known else None


def _recorded(
    program: Program, inputs: Mapping[str, Tensor], arithmetic: Arithmetic, wanted: Collection[int]
) -> dict[int, Sums]:
    """Evaluate the program in float64 and run the sums of the wanted steps."""
    constants = {Ref(number): exactly(tensor) for number, tensor in program.constants.items()}
    sums: dict[int, Sums] = {}

    def apply(run: Run, values: Mapping[Ref, Any], kept: set[Ref]) -> dict[Ref, Any]:
        (step,) = run.steps
        operands = {ref: constants.get(ref, values[ref]) for ref in step.operands}
        if step.number in wanted:
            runs = _runs(step, [operands[ref].mid for ref in step.operands], Local(arithmetic, step))
            sums.update({} if runs is None else {step.number: runs})
        found = evaluate_step(step, operands, arithmetic)
        return by_output(step, (None if value is None else Enclosure(value.mid) for value in found))

    with torch.no_grad():
        walk(program, {name: exactly(value) for name, value in inputs.items()}, apply)
    return sums


def _runs(step: Step, operands: Sequence[Tensor], local: Local) -> Sums | None:
    rows = summed_by(step, operands, local, 0)
    n = rows.values.shape[1]
    if n < 2 or local.compute is not torch.float32:
        return None
    orders = [list(_added(rows, local, order)) for order in _orders(n)]
    return Sums(rows.index, tuple(zip(*orders, strict=True)))


def _added(rows: Terms, local: Local, order: np.ndarray) -> Iterator[Tensor]:
    """Yield the errors of these sums in this order, in each way."""
    terms, read = rows.values[:, order], None if rows.read is None else rows.read[:, order]
    totals = list(profiled.sums(terms, read, local, products=rows.products))
    if not totals:
        running = np.add.accumulate(terms.to(torch.float32).cpu().numpy(), axis=1)[:, -1]
        totals = [torch.from_numpy(running.copy()).to(terms.device)]
    for total in totals:
        yield (total.to(torch.float32).to(local.dtype).double() - rows.values.sum(1)) / rows.divisor


def _orders(n: int) -> list[np.ndarray]:
    ascending = np.arange(n)
    lanes = np.concatenate([ascending[lane::LANES] for lane in range(LANES)])
    return [ascending, ascending[::-1].copy(), np.random.default_rng(n).permutation(n), lanes]
