"""What a verification says of kernels that go wrong, in the user's words."""

from __future__ import annotations

import pytest
import torch

import exactref as er
from kernels_core.errors import NotCovered, UsageError
from kernels_core.report import Report, Verdict
from kernels_core.rows import pattern
from kernels_core.verify import assert_covered, check, verify


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def diagnosis(report: Report, name: str) -> tuple[str, ...]:
    failure = report.row(name).failure
    assert failure is not None
    return failure.diagnosis


def refuses(x):
    raise RuntimeError("no such kernel image")


def transposed(A, B):
    return (A @ B).T


def test_kernel_without_reference_that_raises_is_reported_as_raised():
    report = verify(refuses, {"x": seeded(3)})
    assert report.verdict is Verdict.RAISED
    assert report.raised is not None
    assert (report.raised.phase, report.raised.message) == ("forward", "RuntimeError: no such kernel image")
    assert "in refuses" in report.raised.frames


def test_tracing_of_what_raises_logs_nothing(capfd):
    verify(lambda A, B: A @ B, {"A": seeded(2, 3), "B": seeded(2, 3)})
    assert capfd.readouterr().err == ""


def test_output_of_another_shape_is_violated_and_gradients_are_not_asked_for():
    report = check(transposed, (seeded(3, 4), seeded(4, 2)), reference=er.matmul)
    assert report.verdict is Verdict.VIOLATED
    assert [row.name for row in report.tensors] == ["output"]
    assert report.row("output").note == "expected shape [3, 2], got [2, 3]"
    assert report.notes == ("gradients not checked: an output has another shape",)


def test_transposed_square_output_is_named():
    report = check(transposed, (seeded(4, 4), seeded(4, 4)), reference=er.matmul)
    assert diagnosis(report, "output") == (
        "transposed: all 12 failing elements are in their interval once the last two dimensions are swapped",
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_constant_factor_is_named_in_every_dtype(dtype):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 3 * ctx.saved_tensors[0] * grad

    report = check(Wrong, (seeded(64).to(dtype),))
    assert diagnosis(report, "grad_x") == ("all 64 failing elements are 1.5 times the exact value",)


def test_module_is_called_by_its_class():
    assert check(torch.nn.Softplus(), (seeded(3),)).reference == "Softplus.forward"


def test_missing_input_is_named():
    with pytest.raises(UsageError, match=r"no input is given for B of matmul\(A, B\)\ngiven: A"):
        verify(lambda A: A, {"A": seeded(2, 2)}, reference=er.matmul)


def test_outputs_that_the_reference_lacks_are_named():
    with pytest.raises(
        UsageError, match="the kernel returned output\\[0\\], output\\[1\\]; the reference has output\n"
    ):
        check(lambda A, B: (A @ B, A), (seeded(2, 2), seeded(2, 2)), reference=er.matmul)


def test_message_of_assert_covered_names_element_and_interval():
    with pytest.raises(NotCovered) as caught:
        assert_covered(lambda A, B: 2 * (A @ B), (seeded(2, 2), seeded(2, 2)), reference=er.matmul)
    message = str(caught.value)
    assert "output float32[2, 2]: 0 of 4 covered, 4 violated" in message
    assert "all 4 failing elements are 2 times the exact value" in message
    assert "admissible [" in message


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ((slice(None), slice(None)), "all 48 elements"),
        ((slice(7, 8), slice(None)), "6 of 48 elements (12.5 %): row 7 (the last)"),
        ((slice(6, 8), slice(None)), "12 of 48 elements (25.0 %): rows 6-7 (the last 2)"),
        ((slice(1, 6, 2), slice(None)), "18 of 48 elements (37.5 %): rows 1, 3, 5 (step 2)"),
        ((slice(None), slice(2, 3)), "8 of 48 elements (16.7 %): column 2"),
        ((slice(0, 2), slice(4, 6)), "4 of 48 elements (8.3 %): rows 0-1, columns 4-5 (the last 2)"),
    ],
)
def test_pattern_names_rows_and_columns(indices, text):
    failing = torch.zeros(8, 6, dtype=torch.bool)
    failing[indices] = True
    assert pattern(failing) == text


def test_results_and_references_print_in_one_line():
    A, B = seeded(2, 3), seeded(3, 4)
    assert repr(er.matmul) == "Reference(matmul(A, B))"
    assert repr(er.matmul(A, B)) == "Result(output, float32[2, 4])"
    assert repr(er.matmul.backward(A, B, seeded(2, 4))["grad_A"]) == "Result(grad_A, float32[2, 3])"


def test_check_takes_arguments_in_order_or_by_name_and_names_what_is_neither() -> None:
    x, y = torch.randn(2, 3, generator=torch.Generator().manual_seed(3))
    assert er.check(torch.sub, {"other": y, "input": x}).covered
    assert er.check(lambda x, y: x - y, {"y": y, "x": x}, reference=lambda x, y: x - y).covered
    assert not er.check(lambda x, y: y - x, {"y": y, "x": x}, reference=lambda x, y: x - y).covered
    with pytest.raises(er.UsageError, match="expected a list, a tuple or a mapping of arguments, got Tensor"):
        er.check(torch.relu, x)
