"""The second derivative by a 16-bit tensor that is converted wherever it is read.

A first backward reads a 16-bit operand in float32. One that converts it once leaves autograd one cast to differentiate,
cast(t_1 + .. + t_n); one that converts it in n places leaves n, and autograd adds their results in 16 bits:

    fl(cast(t_1) + .. + cast(t_n))    t_k: what the k-th place contributes, in float32

Both compute the same first gradients, in the same formats and with the same roundings, and a backward made of PyTorch's
16-bit operations (which convert on their own) has no choice. So a second derivative by autograd is granted the latter:
one rounding of each t_k, and one of each addition. The exact value stays, since a cast is the identity.

The places are those of the reference's own formula: the terms of the sum that is cast down, those of sums among them,
and of sums that were only moved, negated or multiplied by a number on the way. What lies behind a product or a
reduction belongs to one place.
"""

from __future__ import annotations

import dataclasses

from kernels_core.formats import format_of
from kernels_core.program import Program, Ref, Step, replace_refs, without_dead_steps
from kernels_core.rules.accumulated import total

_PASSED_THROUGH = frozenset(
    f"aten.{name}"
    for name in (
        "t.default", "transpose.int", "permute.default", "view.default", "_unsafe_view.default", "expand.default",
        "squeeze.dim", "squeeze.dims", "unsqueeze.default", "clone.default", "neg.default", "mul.Scalar", "div.Scalar",
    )
)  # fmt: skip
_SUMS = frozenset({"aten.add.Tensor", "exactref.accumulated"})


def with_repeated_casts(program: Program) -> Program:
    """Return the program of a second derivative with every sum that is cast down cast down term by term."""
    return _Distribution(program).program()


class _Distribution:
    """Writes the steps of a program again, new ones in front of the step that they are for."""

    def __init__(self, program: Program) -> None:
        """Number new steps from the end."""
        self.before = program
        self.known: dict[int, Step] = {step.number: step for step in program.steps}
        self.steps: list[Step] = []

    def program(self) -> Program:
        """Return the program."""
        for step in self.before.steps:
            terms = self._terms(step.operands[0]) if _narrows(step) else []
            self.steps.append(self._distributed(step, terms) if len(terms) > 1 else step)
        return without_dead_steps(dataclasses.replace(self.before, steps=tuple(self.steps)))

    def _distributed(self, cast: Step, terms: list[Ref]) -> Step:
        """Return the sum of the terms, each cast down; it has the number of the cast."""
        narrow = tuple(self._again(cast, term) for term in terms)
        return dataclasses.replace(
            cast, op=total, name="exactref.accumulated", args=narrow, kwargs={},
            operand_metas=(cast.meta,) * len(narrow),
        )  # fmt: skip

    def _terms(self, ref: Ref) -> list[Ref]:
        """Return the terms of a value, itself where it is no sum."""
        step = self.known[ref.step]
        if not step.backward:
            return [ref]
        if step.name in _SUMS and not step.kwargs and all(meta == step.meta for meta in step.operand_metas):
            return [term for operand in step.operands for term in self._terms(operand)]
        if step.name in _PASSED_THROUGH:
            terms = self._terms(step.operands[0])
            return [self._again(step, term) for term in terms] if len(terms) > 1 else [ref]
        return [ref]

    def _again(self, step: Step, operand: Ref) -> Ref:
        """Add the step with another first operand."""
        first = step.operands[0]
        args = replace_refs(step.args, lambda ref: operand if ref == first else ref)
        meta = self.known[operand.step].meta
        return self._add(dataclasses.replace(step, args=args, operand_metas=(meta, *step.operand_metas[1:])))

    def _add(self, step: Step) -> Ref:
        number = max(self.known) + 1
        self.known[number] = dataclasses.replace(step, number=number)
        self.steps.append(self.known[number])
        return Ref(number)


def _narrows(step: Step) -> bool:
    """Return True for a cast that the derivative makes, to a format with a larger unit roundoff."""
    if not step.backward or step.name != "aten._to_copy.default":
        return False
    given, found = step.operand_metas[0].dtype, step.meta.dtype
    if not (given.is_floating_point and found.is_floating_point):
        return False
    return format_of(found).unit_roundoff > format_of(given).unit_roundoff
