"""Shapes found by trial are those that a person would choose, and never those that hide a faulty backward."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from exactref_cli.shapes import describe, find, find_with_optional
from exactref_cli.signature import parameters
from exactref_cli.templates import Given
from kernels_core.errors import UsageError
from tests.core.kernel import ways_to_write as ways

CASES = Path(__file__).parents[1] / "cases"


def found(kernel: Callable[..., Any], **given: Any) -> str:
    return describe(find(kernel, "kernel", parameters(kernel, "kernel"), Given(**given), torch.float32))


def case(stem: str, kernel: str = "Right") -> Any:
    (path,) = CASES.glob(f"{stem}*.py")
    spec = importlib.util.spec_from_file_location(stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel)


class WrongMatmul(torch.autograd.Function):
    """The gradient of A lacks a transposition: it has the right shape for square matrices alone."""

    @staticmethod
    def forward(ctx: Any, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(A, B)
        return A @ B

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        A, B = ctx.saved_tensors
        return grad @ B, A.T @ grad


class Unfinished(torch.autograd.Function):
    """The gradient of y is missing; the forward would take integers too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (y,) = ctx.saved_tensors
        return grad * y, None


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        (lambda x: x * x, "x=16x32"),
        (lambda x, y: x * y, "x=16x32 y=16x32"),
        (lambda A, B: A @ B, "A=16x32 B=32x8"),
        (lambda A, B, C: A @ B @ C, "A=16x32 B=32x8 C=8x24"),
        (lambda x, weight: F.linear(x, weight), "x=16x32 weight=8x32"),
        (lambda x, weight, bias: F.linear(x, weight, bias), "x=16x32 weight=8x32 bias=8"),
        (lambda x, w: F.conv1d(x, w), "x=2x4x12 w=3x4x3"),
        (lambda x, w, b: F.conv2d(x, w, b), "x=2x4x6x5 w=3x4x3x3 b=3"),
        (lambda A, B: torch.bmm(A, B), "A=2x16x32 B=2x32x8"),
        (lambda weight, index: weight[index], "weight=16x32 index=16 (int64)"),
        (lambda z, target: F.cross_entropy(z, target), "z=16x32 target=16 (int64)"),
        (lambda x, eps: x * float(eps), "x=16x32 eps=1e-05"),
        (lambda x, flag=True: x * x, "x=16x32 flag=True"),
    ],
)
def test_plain_functions_get_the_shapes_of_their_kind(kernel: Callable[..., Any], shapes: str) -> None:
    assert found(kernel) == shapes


@pytest.mark.parametrize(
    ("stem", "shapes"),
    [
        ("B02", "x=16x32 w=32 b=32 run_mean=32 run_var=32 training=True"),
        ("B09", "x=16x32 beta=1.0 threshold=1.0"),
        ("B13", "q=16x32 k=16x32 v=16x32"),
        ("B27", "x=16x32 w=8x32 target=16 (int64)"),
        ("B49", "table=16x32 scale=16 index=16 (int64)"),
        ("V03", "x=16x32 w=32 b=32"),
        ("V07", "x=16x32 w=32x8"),
        ("V10", "q=2x16x32 k=2x16x32 v=2x16x32"),
    ],
)
def test_functions_get_shapes_that_their_backward_accepts(stem: str, shapes: str) -> None:
    assert found(case(stem)) == shapes


def test_faulty_backward_does_not_move_the_trial_to_shapes_that_hide_it() -> None:
    assert found(WrongMatmul) == "A=16x32 B=32x8"


def test_missing_gradient_does_not_make_its_input_an_integer() -> None:
    assert found(Unfinished) == "x=16x32 y=16x32"


def test_backward_that_reads_values_is_tried_on_real_tensors() -> None:
    assert found(case("B49", "Wrong")) == found(case("B49", "Right"))


class ThroughNumpy(WrongMatmul):
    """The backward leaves PyTorch, which no fake tensor can; integers would be taken, and have no gradient."""

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        A, B = ctx.saved_tensors
        return torch.from_numpy(grad.numpy() @ B.numpy().T), A.T @ grad


def test_integers_are_no_way_around_a_backward_that_fake_tensors_cannot_run() -> None:
    assert found(ThroughNumpy) == "A=16x32 B=32x8"


@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (torch.nn.Linear(7, 3), "input=16x7"),
        (torch.nn.Conv1d(5, 2, 3), "input=2x5x12"),
        (torch.nn.Tanh(), "input=16x32"),
    ],
)
def test_module_fixes_sizes_of_its_input(module: torch.nn.Module, shapes: str) -> None:
    assert found(module) == shapes


def test_given_shapes_bind_the_others() -> None:
    assert found(WrongMatmul, shapes={"A": (5, 7)}) == "A=5x7 B=7x8"
    assert found(WrongMatmul, shapes={"B": (7, 3)}) == "A=16x7 B=7x3"


def test_given_shapes_are_taken_even_where_the_kernel_refuses_them() -> None:
    assert found(WrongMatmul, shapes={"A": (5, 7), "B": (2, 2)}) == "A=5x7 B=2x2"


def test_given_shape_of_an_index_becomes_an_integer_tensor() -> None:
    kernel = lambda weight, rows: weight[rows]  # noqa: E731
    assert found(kernel, shapes={"weight": (9, 4), "rows": (6,)}) == "weight=9x4 rows=6 (int64)"


def test_given_values_are_kept() -> None:
    kernel = lambda x, n: x.sum(n)  # noqa: E731
    (x, n) = find(kernel, "k", parameters(kernel, "k"), Given(values={"x": [1.0, 2.0], "n": 0}), torch.float32)
    assert (x.values, x.shape, n.value) == ([1.0, 2.0], (2,), 0)  # type: ignore[union-attr]


def test_kernel_that_refuses_fake_tensors_is_tried_on_real_ones() -> None:
    def kernel(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.matmul(A.detach().numpy(), B.detach().numpy()))

    assert found(kernel) == "A=16x32 B=32x8"


def test_kernel_that_accepts_nothing_is_explained() -> None:
    def kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise ValueError("wanted 7 dimensions")

    with pytest.raises(UsageError) as caught:
        found(kernel, shapes={"x": (3,)})
    assert str(caught.value) == (
        "no shapes were found for kernel by trial; with the first candidate: ValueError: wanted 7 dimensions\n"
        "give them: --shape y=16x32"
    )


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("this kernel runs on CUDA tensors only", "with --device cuda"),
        (
            "0 active drivers ([]). There should only be one.",
            "one in Triton without one where TRITON_INTERPRET=1 is set",
        ),
    ],
)
def test_kernel_that_asks_for_a_gpu_is_told_of_the_device(message: str, remedy: str) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(message)

    with pytest.raises(UsageError, match=rf"16x32; a kernel that needs a GPU is called there .*{remedy}$"):
        found(kernel)


def test_separate_setup_context_has_no_ctx_among_its_parameters() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return 3 * x * x * grad

    assert found(Cube) == "x=16x32"


def test_trial_leaves_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    before = torch.get_rng_state()
    found(WrongMatmul)
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")


class RowSum(torch.autograd.Function):
    """The gradient has the shape of the output: right for a scalar alone."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return (2 * x).sum(-1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return 2 * grad


def test_scalar_that_would_hide_a_faulty_backward_is_not_chosen() -> None:
    assert found(RowSum) == "x=16x32"


def test_vector_is_chosen_where_the_forward_takes_nothing_else() -> None:
    assert found(lambda x: torch.dot(x, x)) == "x=32"


def test_keyword_only_parameters_are_given_by_name() -> None:
    def scaled(x: torch.Tensor, *, weight: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * weight * scale

    assert found(scaled) == "x=16x32 weight=16x32 scale=2.0"
    assert found(scaled, values={"scale": 3.0}) == "x=16x32 weight=16x32 scale=3.0"


@pytest.mark.parametrize(
    ("way", "shapes"),
    [
        (ways.linear, "x=16x32 weight=8x32 bias=None"),
        (ways.setup_with_default, "x=16x32 scale=2.0"),
        (ways.in_place, "x=16x32"),
        (ways.not_differentiable, "x=16x32"),
        (ways.varying_number, "scale=0.5 xs[0]=16x32 xs[1]=16x32 xs[2]=16x32"),
        (ways.of_a_list, "xs[0]=16x32 xs[1]=16x32 xs[2]=16x32 weight=8x32 scale=2.0"),
        (ways.of_a_dict, "x=16x32 parameters['weight']=8x32 parameters['bias']=8"),
        (ways.nested, "x=16x32 state[0]=16x8 state[1][0]=32x8 state[1][1]=16x32"),
        (ways.keyword_only, "x=16x32 weight=8x32 scale=2.0"),
        (ways.partial, "x=16x32 weight=8x32 scale=3.0"),
        (ways.bound_apply, "x=16x32 weight=8x32 bias=None"),
        (ways.method, "x=16x32 weight=8x32"),
        (ways.lambda_, "x=16x32 weight=8x32"),
        (ways.compiled("eager"), "x=16x32 weight=8x32"),
        (ways.operator, "x=16x32 scale=1.0"),
        (ways.operator_overload, "x=16x32 scale=1.0"),
    ],
)
def test_functions_as_people_write_them_get_shapes(way: Callable[[float], Any], shapes: str) -> None:
    assert found(way(1.0)) == shapes


def test_tensors_that_may_be_left_out_are_found_too() -> None:
    kernel = ways.linear(1.0)
    inputs = find_with_optional(kernel, parameters(kernel, "kernel"), Given(), torch.float32)
    assert inputs is not None
    assert describe(inputs) == "x=16x32 weight=8x32 bias=8"


def test_a_plain_parameter_that_is_none_by_default_is_no_tensor() -> None:
    kernel = lambda x, dim=None: x.sum(dim)  # noqa: E731
    assert find_with_optional(kernel, parameters(kernel, "kernel"), Given(), torch.float32) is None


def test_given_items_say_what_the_structure_is() -> None:
    def kernel(x: torch.Tensor, state: Any) -> torch.Tensor:
        return x * state["h"][0] * state["h"][1]

    assert found(kernel, shapes={"state['h'][1]": (16, 32)}) == "x=16x32 state['h'][0]=16x32 state['h'][1]=16x32"


def test_trial_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def loud(x: torch.Tensor) -> torch.Tensor:
        print("hello")  # noqa: T201
        return x * 2

    found(loud)
    assert capsys.readouterr() == ("", "")


def residual_norm(x: torch.Tensor, res: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x + res, (x.shape[-1],), weight, bias)


def halves(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w // 2, 2).amax((3, 5)) if h % 2 == w % 2 == 0 else x.view(-1, h * w + 1)


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        (residual_norm, "x=16x32 res=16x32 weight=32 bias=32"),
        (lambda x, weight, res: F.rms_norm(x + res, (32,), weight), "x=16x32 weight=32 res=16x32"),
        (lambda pred, target: ((pred - target) ** 2).mean(), "pred=16x32 target=16x32"),
        (lambda logits, labels: F.binary_cross_entropy_with_logits(logits, labels), "logits=16x32 labels=16x32"),
        (halves, "x=2x8x8x8"),
    ],
)
def test_the_most_general_shapes_come_first(kernel: Callable[..., Any], shapes: str) -> None:
    assert found(kernel) == shapes


def test_family_of_values_says_whether_an_input_is_of_integers() -> None:
    def loss(z: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(z, target)

    assert found(loss) == "z=16x32 target=16 (int64)"
    assert found(loss, families={"target": "normal"}) == "z=16x32 target=16x32"
    assert found(lambda x, y: x * y, families={"y": "index"}) == "x=16x32 y=16x32 (int64)"
    assert found(lambda x, m: x.masked_fill(m, 0.0), families={"m": "mask"}) == "x=16x32 m=16x32 (bool)"
