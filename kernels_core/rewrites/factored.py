"""Results of derivatives end in a step that grants the factoring of what they are linear in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kernels_core.program import Program, Ref, Step


def with_factored(program: Program, roundings: Mapping[str, int]) -> Program:
    """Let results end in the step that grants the factoring of what they are linear in (rules/arithmetic.py).

    Args:
        program: of derivatives.
        roundings: how many factors each result has: one for a gradient (the upstream) or tangent, two for the second
            order (the upstreams of both orders).
    """
    steps, outputs = list(program.steps), dict(program.outputs)
    numbered = {step.number: step for step in steps}
    number = max(numbered, default=-1) + 1
    for name, count in roundings.items():
        ref = program.outputs[name]
        if ref is None or numbered[ref.step].op is None:
            continue
        step, meta = numbered[ref.step], program.output_metas[name]
        narrowed = step.name == "aten._to_copy.default" and step.operand_metas[0].dtype.is_floating_point
        settings = {"compute": step.operand_metas[0].dtype if narrowed else meta.dtype, "roundings": count}
        steps.append(Step(number, lambda a, compute, roundings: a, "exactref.factored", (ref,), settings, (meta,),
                          step.source, True, (meta,)))  # fmt: skip
        outputs[name] = Ref(number)
        number += 1
    return dataclasses.replace(program, steps=tuple(steps), outputs=outputs)
