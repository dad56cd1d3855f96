"""Normalisations with weight and bias as closed forms, where what they are given is exact (inputs and constants).

`closed` replaces the products, sums and last roundings around the steps of fusion.py by those of
rules/affine_normalization.py: in a layer norm out = y w + b, its gradients of x, w, and h = g w in between. A program
that is written otherwise stays as it is; one that meets an infinity or NaN is evaluated without these steps (run.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kernels_core.program import Program, Ref, Step, replace_refs, without_dead_steps
from kernels_core.rules.cones import normal_dims


class _Uses:
    """Who makes and who reads which result of a program."""

    def __init__(self, program: Program) -> None:
        """Take in the steps."""
        self.steps: Mapping[int, Step] = {step.number: step for step in program.steps}
        self.exact = {Ref(number) for number in (*program.inputs.values(), *program.constants)}
        self.outputs = {ref for ref in program.outputs.values() if ref is not None}
        self.readers: dict[Ref, list[Step]] = {}
        for step in program.steps:
            for ref in step.operands:
                self.readers.setdefault(ref, []).append(step)

    def only(self, ref: Ref, name: str) -> Step | None:
        """Return the step of this name that reads a result, where nothing else does."""
        found = self.readers.get(ref, [])
        alone = len(found) == 1 and found[0].name == name and ref not in self.outputs
        return found[0] if alone else None

    def factor(self, step: Step, other: Ref) -> Ref | None:
        """Return what is multiplied with `other`, where that is exact."""
        if step.name != "aten.mul.Tensor" or step.kwargs or other not in step.args:
            return None
        first, second = step.args
        rest = second if first == other else first
        return rest if isinstance(rest, Ref) and rest in self.exact else None

    def meta(self, ref: Ref) -> Any:
        """Return shape and dtype of a result."""
        return self.steps[ref.step].metas[ref.output]


def closed(program: Program) -> Program:
    """Return the program with closed forms; step numbers are kept."""
    uses, moved, changed = _Uses(program), dict[Ref, Ref](), dict[int, Step]()
    for step in program.steps:
        if step.name == "fused.normalize" and step.args[0] in uses.exact:
            changed |= {found.number: found for found in _around(step, uses, moved)}
        if step.name == "fused.normalize_backward" and (found := _derivative(step, uses)) is not None:
            changed[found.number] = found
    if not changed:
        return program
    steps = [changed.get(step.number, step) for step in program.steps]
    return without_dead_steps(dataclasses.replace(program, steps=tuple(_redirected(step, moved) for step in steps)))


def _redirected(step: Step, moved: Mapping[Ref, Ref]) -> Step:
    if not any(ref in moved for ref in step.operands):
        return step
    args, kwargs = replace_refs((step.args, dict(step.kwargs)), lambda ref: moved.get(ref, ref))
    return dataclasses.replace(step, args=args, kwargs=kwargs)


def _around(norm: Step, uses: _Uses, moved: dict[Ref, Ref]) -> list[Step]:
    """Return closed steps for all that reads y = (x - m) r; none where something else reads it."""
    y, found = Ref(norm.number), list[Step]()
    last: Step | None = None
    for reader in uses.readers.get(y, []):
        step = _weight_gradient(norm, reader, uses) if reader.backward else _affine(norm, reader, uses)
        if step is None or y in uses.outputs or (last and not reader.backward):
            return []
        last = last if reader.backward else step
        found.append(step)
    rows = {Ref(norm.number, output): Ref(last.number, output) for output in (1, 2)} if last is not None else {}
    if last is None or any(reader.number < last.number for ref in rows for reader in uses.readers.get(ref, [])):
        return []
    moved.update(rows)
    return found


def _affine(norm: Step, product: Step, uses: _Uses) -> Step | None:
    """Return out = y w + b, or y w where nothing exact is added to it."""
    x, dims, eps = norm.args
    weight = uses.factor(product, Ref(norm.number))
    if weight is None or product.meta != norm.meta or not _alike((weight, x), uses):
        return None
    total, bias, end = uses.only(Ref(product.number), "aten.add.Tensor"), None, product
    if total is not None and not total.kwargs and total.meta == norm.meta:
        first, second = total.args
        other = second if first == Ref(product.number) else first
        if isinstance(other, Ref) and other in uses.exact and _alike((other, x), uses):
            bias, end = other, total
    operands = tuple(uses.meta(ref) for ref in (x, weight, bias) if ref is not None)
    return dataclasses.replace(end, name="closed.normalize", args=(x, weight, bias, dims, eps),
                               metas=(end.meta, *norm.metas[1:]), operand_metas=operands)  # fmt: skip


def _weight_gradient(norm: Step, product: Step, uses: _Uses) -> Step | None:
    """Return the sum of g y over the leading dimensions, all but those of the norm."""
    g = uses.factor(product, Ref(norm.number))
    total = uses.only(Ref(product.number), "aten.sum.dim_IntList")
    if g is None or total is None or total.kwargs or uses.meta(g) != norm.meta:
        return None
    rank, dims = len(norm.shape), norm.args[1]
    reduced = normal_dims(total.args[1], rank)
    if sorted(reduced) != list(range(min(dims))) or sorted(dims) != list(range(min(dims), rank)):
        return None
    args = (g, tuple(sorted(reduced)), len(total.args) > 2 and bool(total.args[2]), norm.args[0],
            Ref(norm.number, 1), Ref(norm.number, 2))  # fmt: skip
    operands = tuple(uses.meta(ref) for ref in args if isinstance(ref, Ref))
    return dataclasses.replace(total, name="closed.normalize_weight", args=args, operand_metas=operands)


def _derivative(backward: Step, uses: _Uses) -> Step | None:
    """Return dx with its last rounding, from g and w where h is their product."""
    h, x, mean, rstd, dims = backward.args
    last, made = uses.only(Ref(backward.number), "exactref.factored"), uses.steps[h.step]
    factors = made.args if made.name == "aten.mul.Tensor" and not made.kwargs else ()
    for g, weight in ((h, None), *((factors, factors[::-1]) if factors else ())):
        operands = [ref for ref in (g, weight, x) if ref is not None]
        exact = all(isinstance(ref, Ref) and ref in uses.exact for ref in operands)
        if last is not None and exact and uses.meta(g) == backward.meta and _alike(operands, uses):
            metas = tuple(uses.meta(ref) for ref in (*operands, mean, rstd))
            return dataclasses.replace(last, name="closed.normalize_backward", args=(g, weight, x, mean, rstd, dims),
                                       operand_metas=metas)  # fmt: skip
    return None


def _alike(refs: Sequence[Ref], uses: _Uses) -> bool:
    """Return True where all results have the same dtype."""
    return len({uses.meta(ref).dtype for ref in refs}) == 1
