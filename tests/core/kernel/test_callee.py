"""Functions as people write them are checked as they are: a right one is covered, a wrong gradient is violated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_core.errors import TraceError
from kernels_core.report import Verdict
from kernels_core.verify import check, verify
from tests.core.kernel import ways_to_write as ways

Tensor = torch.Tensor


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


X, W = normal(5, 7), normal(3, 7)
WAYS: list[tuple[Callable[[float], Any], dict[str, Any]]] = [
    (ways.linear, {"x": X, "weight": W}),
    (ways.linear, {"x": X, "weight": W, "bias": normal(3)}),
    (ways.setup_with_default, {"x": X}),
    (ways.setup_with_default, {"x": X, "scale": 3.0}),
    (ways.in_place, {"x": X}),
    (ways.not_differentiable, {"x": X}),
    (ways.once, {"x": X}),
    (ways.not_materialized, {"x": X}),
    (ways.varying_number, {"scale": 2.0, "xs": (X, X + 1, X * X)}),
    (ways.of_a_list, {"xs": [X, X + 1], "weight": W}),
    (ways.of_a_dict, {"x": X, "parameters": {"weight": W, "bias": normal(3)}}),
    (ways.nested, {"x": normal(3), "state": (X, (W, normal(3)))}),
    (ways.keyword_only, {"x": X, "weight": W}),
    (ways.partial, {"x": X, "weight": W}),
    (ways.bound_apply, {"x": X, "weight": W}),
    (ways.method, {"x": X, "weight": W}),
    (ways.lambda_, {"x": X, "weight": W}),
    (ways.compiled("eager"), {"x": X, "weight": W}),
    (ways.compiled("aot_eager"), {"x": X, "weight": W}),
    (ways.operator, {"x": X}),
    (ways.operator, {"x": X, "scale": 2.0}),
    (ways.operator_overload, {"x": X}),
    (ways.operator_inside, {"x": X}),
]
NAMES = [f"{way.__qualname__.split('.')[0]}-{len(inputs)}" for way, inputs in WAYS]


@pytest.mark.filterwarnings("ignore")  # what torch.compile says while it compiles
@pytest.mark.parametrize(("way", "inputs"), WAYS, ids=NAMES)
def test_every_way_to_write_a_kernel_is_decided(way: Callable[[float], Any], inputs: dict[str, Any]) -> None:
    before = torch.utils._pytree.tree_map_only(Tensor, torch.clone, inputs)
    report = verify(way(1.0), inputs)
    assert report.covered, report
    wrong = verify(way(1.01), inputs)
    assert wrong.verdict is Verdict.VIOLATED
    assert all(row.kind == "gradient" for row in wrong.tensors if row.violated)
    leaves = zip(*(torch.utils._pytree.tree_leaves(tree) for tree in (before, inputs)), strict=True)
    assert all(torch.equal(a, b) for a, b in leaves if isinstance(a, Tensor))


def test_gradients_are_named_after_the_items_of_structures() -> None:
    report = verify(ways.nested(1.0), {"x": normal(3), "state": (X, (W, normal(3)))})
    gradients = [row.name for row in report.tensors if row.kind == "gradient"]
    assert gradients == ["grad_x", "grad_state[0]", "grad_state[1][0]", "grad_state[1][1]"]
    assert [given.name for given in report.inputs] == ["x", "state[0]", "state[1][0]", "state[1][1]"]


def test_inputs_with_the_kernels_names_may_come_in_any_order() -> None:
    assert verify(ways.linear(1.0), {"weight": W, "x": X}).covered


def test_inputs_without_the_kernels_names_are_taken_in_order() -> None:
    reference = lambda a, b: a @ b.t()  # noqa: E731
    assert verify(ways.linear(1.0), {"b": X, "a": W}, reference=lambda x, weight: x @ weight.t()).covered
    assert verify(ways.linear(1.0), {"a": X, "b": W}, reference=reference).covered


def test_a_reference_may_call_what_the_kernel_takes_one_by_one_by_another_name() -> None:
    def product(factor: float, *tensors: Tensor) -> Tensor:
        return tensors[0] * tensors[1] * factor

    inputs = {"scale": 2.0, "xs": (X, X + 1)}
    assert verify(ways.varying_number(1.0), inputs, reference=product).covered
    assert verify(ways.varying_number(1.01), inputs, reference=product).verdict is Verdict.VIOLATED


def test_what_is_marked_non_differentiable_gets_no_upstream_gradient_and_is_said() -> None:
    def largest(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, indices = x.max(-1)
        return values, indices, x.amax(-1) - x.amin(-1)

    report = verify(ways.not_differentiable(1.0), {"x": X}, reference=largest)
    assert report.covered
    assert "output[2] is marked non-differentiable: its upstream gradient counts as zero" in report.notes


def test_an_output_that_is_detached_without_being_marked_is_a_missing_gradient() -> None:
    def kernel(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, (x * 3).detach()

    report = verify(kernel, {"x": X}, reference=lambda x: (x * 2, x * 3))
    assert report.row("grad_x").verdict is Verdict.VIOLATED


def test_a_kernel_that_marks_all_its_outputs_is_not_excused() -> None:
    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x * 2
            ctx.mark_non_differentiable(y)
            return y

    report = check(Marked, (X,), reference=lambda x: x * 2)
    assert report.row("grad_x").verdict is Verdict.VIOLATED


def test_a_reference_that_works_in_place_leaves_the_inputs_alone() -> None:
    x = X.clone()
    assert check(ways.in_place(1.0), (x,), reference=lambda x: x.mul_(2)).covered
    assert check(
        lambda x: x * (2 if x.sum() > 0 else 3), (x,), reference=lambda x: x.mul_(2 if x.sum() > 0 else 3)
    ).covered
    assert torch.equal(x, X)


def test_an_untraceable_reference_is_named_with_its_line() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * x.sum().item()

    with pytest.raises(
        TraceError, match=r"^the reference scaled takes a floating value out of PyTorch \(.item at .*:\d+\)"
    ):
        check(lambda x: x, (X,), reference=scaled)
    with pytest.raises(TraceError, match=r"^the reference <lambda> cannot be traced: ValueError: rows\ngive inputs"):
        check(lambda x: x, (X,), reference=lambda x: _raise("rows"))


def _raise(text: str) -> Any:
    raise ValueError(text)


def test_an_exception_without_a_message_is_its_name() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise KeyError

    raised = verify(raises, {"x": torch.ones(3)}, reference=torch.sin).raised
    assert raised is not None
    assert raised.message == "KeyError"
