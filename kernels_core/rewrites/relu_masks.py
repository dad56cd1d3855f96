"""The derivative of relu, by its argument: PyTorch's takes the output, which is 0 on the whole negative side.

`threshold_backward(grad, relu(x), 0)` and `threshold_backward(grad, x, 0)` are the same function, since relu(x) <= 0
just where x <= 0. Read from the output, every negative x would look like a tie with 0, hence a kink.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kernels_core.program import Program, Ref, Step, without_dead_steps

_SAME = frozenset({"aten.detach.default", "aten.alias.default"})


def with_relu_arguments(program: Program) -> Program:
    """Return the program with every such derivative reading relu's argument."""
    steps = {step.number: step for step in program.steps}
    changed: dict[int, Step] = {}
    for step in program.steps:
        if step.name == "aten.threshold_backward.default" and step.args[2] == 0:
            argument = _argument(step.args[1], steps)
            if argument is not None:
                changed[step.number] = dataclasses.replace(step, args=(step.args[0], argument, *step.args[2:]))
    if not changed:
        return program
    found = tuple(changed.get(step.number, step) for step in program.steps)
    return without_dead_steps(dataclasses.replace(program, steps=found))


def _argument(output: Ref, steps: Mapping[int, Step]) -> Ref | None:
    """Return x where `output` is relu(x), else None."""
    step = steps[output.step]
    while step.name in _SAME:
        step = steps[step.operands[0].step]
    return step.operands[0] if step.name == "aten.relu.default" else None
