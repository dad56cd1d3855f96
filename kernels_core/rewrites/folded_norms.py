"""Normalisation with given statistics as kernels fold it: x a + (b - m a) with a = w / sqrt(v + eps).

PyTorch's own batch norm in evaluation works so, and every kernel that folds the norm into what stands before it. Both
are the same function of x; where x is near the mean the two products are larger than their difference, and so are their
roundings. The program rewritten here is evaluated beside that of the usual form (x - m) r w + b, and the larger bound
of the two is granted (`Check`). The exact value stays that of the usual form.

Only where PyTorch's function is called: `decompositions/normalization.py` marks its means by a copy. A reference that
writes the formula out means its own roundings, unless it multiplies by rsqrt(v + eps) and copies its mean as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from kernels_core.program import Program, Ref, Step, without_dead_steps
from kernels_core.rewrites.usual_functions import made

_aten = torch.ops.aten


def folded(program: Program) -> Program | None:
    """Return the program of a forward with its norms of given statistics folded; None where it has none."""
    found = _Folding(program)
    for step in program.steps:
        if step.name == "aten.sub.Tensor" and not step.kwargs:
            found.fold(step)
    if not found.changed:
        return None
    return without_dead_steps(dataclasses.replace(program, steps=tuple(found.steps())))


class _Folding:
    """Steps by number, who reads each, and what stands in the place of those that are folded."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.known = {step.number: step for step in program.steps}
        self.readers: dict[Ref, list[Step]] = {}
        for step in program.steps:
            for ref in step.operands:
                self.readers.setdefault(ref, []).append(step)
        self.kept = {ref for ref in program.outputs.values() if ref is not None}
        self.number = max(self.known, default=0)
        self.changed: dict[int, list[Step]] = {}

    def steps(self) -> list[Step]:
        """Return all steps in order."""
        return [new for step in self.program.steps for new in self.changed.get(step.number, [step])]

    def fold(self, centred: Step) -> None:
        """Fold the norm that begins with this difference, if one does."""
        x, copy = centred.args
        source = self.known[copy.step] if isinstance(copy, Ref) else None
        scaled = self._next(centred, "aten.mul.Tensor")
        if not isinstance(x, Ref) or source is None or source.name != "aten.clone.default" or scaled is None:
            return
        if not self._is_inverse_root(scaled[1]):
            return
        mean, scale, end = source.operands[0], scaled[1], scaled[0]
        new: list[Step] = []
        if weighted := self._next(end, "aten.mul.Tensor"):
            end, scale = weighted[0], self._new(new, end, _aten.mul.Tensor, scale, weighted[1])
        moved = self._new(new, end, _aten.mul.Tensor, mean, scale)
        product = self._new(new, end, _aten.mul.Tensor, x, scale)
        if shifted := self._next(end, "aten.add.Tensor"):
            end = shifted[0]
            self._new(new, end, _aten.add.Tensor, product, self._new(new, end, _aten.sub.Tensor, shifted[1], moved))
        else:
            self._new(new, end, _aten.sub.Tensor, product, moved)
        new[-1] = dataclasses.replace(new[-1], number=end.number)
        self.changed[end.number] = new

    def _is_inverse_root(self, scale: Ref) -> bool:
        """Return True for 1 / sqrt(v + eps)."""
        root = self.known[scale.step]
        return root.name == "aten.rsqrt.default" and self.known[root.operands[0].step].name.startswith("aten.add.")

    def _next(self, step: Step, name: str) -> tuple[Step, Any] | None:
        """Return the only reader of a step, where it is of that name, and its other operand."""
        ref = Ref(step.number)
        readers = self.readers.get(ref, [])
        if len(readers) != 1 or ref in self.kept or readers[0].name != name or readers[0].kwargs:
            return None
        others = [arg for arg in readers[0].args if arg != ref]
        return (readers[0], others[0]) if len(others) == 1 and isinstance(others[0], Ref) else None

    def _new(self, new: list[Step], like: Step, op: Callable[..., Any], *args: Ref) -> Ref:
        """Add a step of our own, of the shape that its operands broadcast to."""
        self.number += 1
        metas = [meta for ref in args if (meta := self.known[ref.step].metas[ref.output]) is not None]
        shape = torch.broadcast_shapes(*(meta.shape for meta in metas))
        meta = like.meta._replace(shape=tuple(shape))
        step = made(self.number, like, op, args, meta, metas)
        self.known[step.number] = step
        new.append(step)
        return Ref(step.number)
