"""Programs as data: operands take their places in the arguments of a step."""

from __future__ import annotations

from kernels_core.program import Ref, Step


def test_filled_puts_operands_in_order_into_nested_arguments() -> None:
    args = (Ref(3), 2, [Ref(1), None, Ref(2, 1)], "mean")
    step = Step(4, None, "aten.any", args, {"weight": Ref(0), "dims": [1, 2], "more": {"k": Ref(3)}}, ())
    operands = [f"value of {ref.step}.{ref.output}" for ref in step.operands]
    filled = ("value of 3.0", 2, ["value of 1.0", None, "value of 2.1"], "mean")
    assert step.filled(operands) == (filled, {"weight": "value of 0.0", "dims": [1, 2], "more": {"k": "value of 3.0"}})


def test_filled_leaves_a_step_without_operands_as_it_is() -> None:
    step = Step(0, None, "aten.full", ([2, 3], 1.0), {"pin_memory": False}, ())
    assert step.filled([]) == (([2, 3], 1.0), {"pin_memory": False})
