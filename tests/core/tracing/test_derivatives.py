"""Forward mode and second order: PyTorch's own and hand-written derivatives are covered, planted errors are not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import exactref as er
from kernels_core.coverage import Element
from kernels_core.errors import TraceError, UsageError
from kernels_core.formats import format_of, ulp
from kernels_core.reference import Check, Result, reference
from kernels_core.tracing import derivatives
from kernels_core.tracing.trace import trace
from tests.core.rules.checker import assert_contained, assert_covered

Tensor = torch.Tensor


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


SMOOTH = {
    "tanh": (torch.tanh, [draw(40)]),
    "sigmoid": (torch.sigmoid, [draw(40)]),
    "softplus": (F.softplus, [3 * draw(40)]),
    "silu": (F.silu, [3 * draw(40)]),
    "gelu": (F.gelu, [2 * draw(40)]),
    "mish": (F.mish, [draw(40)]),
    "glu": (F.glu, [draw(5, 8)]),
    "cube": (lambda x: x * x * x, [draw(40)]),
    "power": (lambda x: x.abs() ** 2.5, [draw(40)]),
    "quotient": (lambda a, b: a / (b * b + 1), [draw(40), draw(40, seed=1)]),
    "product_with_broadcast": (lambda a, b: a * b, [draw(4, 10), draw(10)]),
    "matmul": (lambda A, B: A @ B, [draw(6, 7), draw(7, 5)]),
    "linear": (F.linear, [draw(6, 7), draw(5, 7), draw(5)]),
    "softmax": (lambda x: torch.softmax(x, -1), [draw(5, 9)]),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), [draw(5, 9)]),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), [draw(5, 9)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (9,), w, b), [draw(5, 9), draw(9), draw(9, seed=3)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (9,), w), [draw(5, 9), draw(9)]),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [draw(6, 4), draw(4), draw(4, seed=2)]),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), [draw(5, 9)]),
    "variance": (lambda x: torch.var(x, -1), [draw(5, 9)]),
    "cumsum": (lambda x: torch.cumsum(x * x, -1), [draw(5, 9)]),
    "cumprod": (lambda x: torch.cumprod(x, -1), [draw(5, 6)]),
    "amax": (lambda x: torch.amax(x * x, -1), [draw(5, 9)]),
    "conv1d": (F.conv1d, [draw(2, 3, 8), draw(4, 3, 3), draw(4)]),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), [draw(2, 3, 6, 5), draw(4, 3, 3, 3)]),
    "attention": (
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v,
        [draw(2, 6, 4), draw(2, 6, 4, seed=1), draw(2, 6, 4, seed=2)],
    ),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(5)), [draw(5, 9)]),
    "huber": (F.huber_loss, [draw(40), draw(40, seed=5)]),
}
# In 16 bit PyTorch's kernels for norms keep 16-bit statistics and those of cumprod compose in another way, which is
# not granted (composites.py).
NARROW = [name for name in SMOOTH if name not in ("layer_norm", "rms_norm", "batch_norm", "cumprod")]


def vectors_like(tensors: Sequence[Tensor], seed: int) -> list[Tensor]:
    return [draw(*t.shape, seed=seed + k).to(t.dtype) for k, t in enumerate(tensors)]


def named(function: Any, args: Sequence[Tensor]) -> dict[str, Tensor]:
    return dict(zip(reference(function).signature.parameters, args, strict=False))


def twice(function: Any, args: Sequence[Tensor]) -> tuple[Mapping[str, Result], list[Tensor]]:
    """Return our second order and that of autograd through `function`."""
    grad = draw(*function(*args).shape, seed=7).to(args[0].dtype)
    vectors = vectors_like(args, 11)
    results = reference(function).double_backward(
        *args, grad, {f"grad_{name}": v for name, v in zip(named(function, args), vectors, strict=True)}
    )
    return results, autograd_twice(function, args, grad, vectors)


def autograd_twice(function: Any, args: Sequence[Tensor], grad: Tensor, vectors: Sequence[Tensor]) -> list[Tensor]:
    leaves = [a.clone().requires_grad_() for a in (*args, grad)]
    first = torch.autograd.grad(function(*leaves[:-1]), leaves[:-1], leaves[-1], create_graph=True)
    used = [(g, v) for g, v in zip(first, vectors, strict=True) if g.requires_grad]
    found = torch.autograd.grad([g for g, _ in used], leaves, [v for _, v in used], allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]


def pushed(function: Any, args: Sequence[Tensor]) -> tuple[Mapping[str, Result], list[Tensor]]:
    """Return our tangents and those of PyTorch's forward mode."""
    tangents = vectors_like(args, 13)
    results = reference(function).jvp(*args, tangents=dict(zip(named(function, args), tangents, strict=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return results, [torch.func.jvp(function, tuple(args), tuple(tangents))[1]]


ORDERS = {"double_backward": twice, "jvp": pushed}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTH)
def test_pytorchs_own_derivatives_are_covered_and_exact_values_are_near(name, order):
    function, args = SMOOTH[name]
    results, actuals = ORDERS[order](function, args)
    for result, actual in zip(results.values(), actuals, strict=True):
        assert_covered(result, actual, name)
        assert_contained(result)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", [name for name in NARROW if name != "glu"])
def test_pytorchs_own_derivatives_are_covered_when_in_bfloat16(name, order):
    function, args = SMOOTH[name]
    results, actuals = ORDERS[order](function, [a.bfloat16() for a in args])
    for result, actual in zip(results.values(), actuals, strict=True):
        assert_covered(result, actual, name)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "silu", "gelu", "cube", "power", "quotient"])
def test_an_error_of_64_ulp_is_violated_when_well_conditioned(name, order):
    function, args = SMOOTH[name]
    results, _ = ORDERS[order](function, [a / 4 + 1 for a in args])
    for result in results.values():
        mid = result.enclosure.mid
        planted = (mid + 64 * ulp(mid, format_of(result.meta.dtype))).to(result.meta.dtype)
        well = mid.abs() > 0.4 * mid.abs().max()  # no cancellation to speak of
        assert bool((result.verdict(planted)[well] == Element.VIOLATED).double().mean() > 0.8), result


class FromOutput(torch.autograd.Function):
    """tanh, whose backward uses the saved output."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


class FromInput(FromOutput):
    """tanh, whose backward computes it again."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / torch.cosh(x) ** 2


class Frozen(FromOutput):
    """tanh, whose slope is computed where no graph is recorded: its second derivative is lost."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.slope = 1 - y * y
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.slope


@pytest.mark.parametrize(("function", "right"), [(FromOutput, True), (FromInput, True), (Frozen, False)])
def test_a_functions_double_backward_is_covered_just_when_it_is_right(function, right):
    x, grad, vector = draw(40), draw(40, seed=1), draw(40, seed=2)
    second = autograd_twice(function.apply, [x], grad, [vector])
    results = er.tanh.double_backward(x, grad, {"grad_input": vector})
    assert bool(results["grad_grad_output"].covers(second[1]).all())
    assert bool((results["grad_input"].verdict(second[0]) == Element.VIOLATED).all()) is not right
    assert bool(results["grad_input"].covers(second[0]).all()) is right


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def normal(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) * 0.3989422804014327


# Second derivatives as kernels write them, w being the product of both upstream gradients.
WRITTEN = {
    "tanh": (torch.tanh, [
        lambda x, w: -2 * torch.tanh(x) * (1 - torch.tanh(x) ** 2) * w,
        lambda x, w: w * (-2 * torch.tanh(x)) / torch.cosh(x) ** 2,
        lambda x, w: -2 * torch.tanh(x) * ((1 - torch.tanh(x)) * (1 + torch.tanh(x))) * w,
    ]),
    "sigmoid": (torch.sigmoid, [
        lambda x, w: sigmoid(x) * (1 - sigmoid(x)) * (1 - 2 * sigmoid(x)) * w,
        lambda x, w: w * (sigmoid(x) * (1 - sigmoid(x)) ** 2 - sigmoid(x) ** 2 * (1 - sigmoid(x))),
        lambda x, w: sigmoid(x) * sigmoid(-x) * (sigmoid(-x) - sigmoid(x)) * w,
    ]),
    "softplus": (F.softplus, [
        lambda x, w: sigmoid(x) * (1 - sigmoid(x)) * w,
        lambda x, w: w * torch.exp(-x.abs()) / (1 + torch.exp(-x.abs())) ** 2,
    ]),
    "silu": (F.silu, [
        lambda x, w: sigmoid(x) * (1 - sigmoid(x)) * (2 + x * (1 - 2 * sigmoid(x))) * w,
        lambda x, w: w * sigmoid(x) * sigmoid(-x) * (2 - x * torch.tanh(x / 2)),
        lambda x, w: w * (2 * sigmoid(x) * (1 - sigmoid(x)) + x * sigmoid(x) * (1 - sigmoid(x)) * (1 - 2 * sigmoid(x))),
    ]),
    "gelu": (F.gelu, [
        lambda x, w: normal(x) * (2 - x * x) * w,
        lambda x, w: w * (2 * normal(x) - x * x * normal(x)),
    ]),
    "cube": (lambda x: x * x * x, [lambda x, w: 6 * x * w, lambda x, w: 3 * w * (x + x)]),
    "atan": (torch.atan, [lambda x, w: -2 * x / (1 + x * x) ** 2 * w]),
    "reciprocal_root": (lambda x: torch.rsqrt(x * x + 1), [
        lambda x, w: w * (2 * x * x - 1) * torch.rsqrt(x * x + 1) ** 5,
    ]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WRITTEN)
def test_second_derivatives_as_kernels_write_them_are_covered(name, dtype):
    function, forms = WRITTEN[name]
    x, g, v = (3 * draw(2000)).to(dtype), draw(2000, seed=1).to(dtype), draw(2000, seed=2).to(dtype)
    key = next(iter(reference(function).signature.parameters))
    result = reference(function).double_backward(x, g, {f"grad_{key}": v})[f"grad_{key}"]
    for form in forms:
        assert_covered(result, form(x.float(), g.float() * v.float()).to(dtype), name)


def test_softmax_and_matmul_as_kernels_write_them_are_covered():
    x, g, v = draw(6, 50), draw(6, 50, seed=1), draw(6, 50, seed=2)
    y = torch.softmax(x, -1)
    inner = (y * g).sum(-1, keepdim=True)
    a = v * g - v * inner - g * (y * v).sum(-1, keepdim=True)
    second = er.softmax.double_backward(x, g, {"grad_input": v})
    assert_covered(second["grad_input"], y * (a - (a * y).sum(-1, keepdim=True)))
    assert_covered(second["grad_grad_output"], y * (v - (y * v).sum(-1, keepdim=True)))
    A, B, grad, on_A, on_B = draw(6, 33), draw(33, 5), draw(6, 5), draw(6, 33, seed=1), draw(33, 5, seed=1)
    found = er.matmul.double_backward(A, B, grad, {"grad_A": on_A, "grad_B": on_B})
    assert_covered(found["grad_A"], grad @ on_B.T)
    assert_covered(found["grad_B"], on_A.T @ grad)
    assert_covered(found["grad_grad_output"], torch.cat([on_A, A], 1) @ torch.cat([B, on_B]))


def test_results_are_named_after_what_they_belong_to():
    A, B, grads = draw(3, 4), draw(4, 2), (draw(3, 2), draw(3, 4))
    ref = reference(lambda A, B: (A @ B, A * A))
    found = ref.double_backward(A, B, grads, {"grad_A": A, "grad_B": B})
    assert list(found) == ["grad_A", "grad_B", "grad_grad_output[0]", "grad_grad_output[1]"]
    assert list(ref.double_backward(A, B, grads, {"grad_A": A}, wrt=["A"])) == [
        "grad_A", "grad_grad_output[0]", "grad_grad_output[1]"
    ]  # fmt: skip
    assert list(ref.jvp(A, B, tangents={"A": A})) == ["tangent_output[0]", "tangent_output[1]"]


def test_outputs_and_gradients_come_of_one_trace_and_the_forward_needs_no_upstream_gradient() -> None:
    calls = []

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(1)
        return x * y, (x + y).long()

    x, y = torch.randn(3), torch.randn(3)
    check = Check(reference(function), {"x": x, "y": y})
    results = check.both([torch.ones(3)])
    assert len(calls) == 1
    assert set(check.joint.inputs) == {"x", "y", "grad_output[0]"}
    assert set(check.forward.inputs) == {"x", "y"}
    assert list(check.forward.outputs) == ["output[0]", "output[1]"]
    assert results["grad_x"].covers(y).all()
    assert not results["grad_x"].covers(x).any()


def test_inputs_that_require_a_gradient_are_taken_for_their_values() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    check = Check(reference(lambda x: torch.logsumexp(x, -1)), {"x": x})
    assert not any(t.requires_grad for t in check.parts.values())
    assert check.outputs()["output"].covers(torch.logsumexp(x, -1).detach()).all()


def test_equal_upstream_gradients_stay_apart_and_one_that_nothing_needs_stays_an_input() -> None:
    check = Check(reference(lambda x: (2 * x, 3 * x, x.detach() * torch.zeros(3))), {"x": torch.ones(3)})
    upstream = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0, 30.0]), torch.ones(3)]
    assert check.both(upstream)["grad_x"].covers(torch.tensor([32.0, 64.0, 96.0])).all()
    assert set(check.joint.inputs) == {"x", "grad_output[0]", "grad_output[1]", "grad_output[2]"}


def test_a_gradient_without_a_vector_does_not_count():
    A, B, grad = draw(3, 4), draw(4, 2), draw(3, 2)
    found = er.matmul.double_backward(A, B, grad, {"grad_A": A})
    assert_covered(found["grad_A"], torch.zeros_like(A))
    assert_covered(found["grad_grad_output"], A @ B)


def test_an_input_without_a_tangent_is_constant():
    A, B = draw(3, 4), draw(4, 2)
    assert_covered(er.matmul.jvp(A, B, tangents={"B": 2 * B})["tangent_output"], A @ (2 * B))


def test_second_derivatives_at_a_kink_accept_either_side():
    x = torch.tensor([0.0, 1.0, -1.0])
    ref, one = reference(lambda x: torch.relu(x) * x), torch.ones(3)
    result = ref.double_backward(x, one, {"grad_x": one})["grad_x"]
    assert result.covers(torch.tensor([0.0, 2.0, 0.0])).all()
    assert result.covers(torch.tensor([2.0, 2.0, 0.0])).all()
    assert result.covers(torch.tensor([3.0, 3.0, 1.0])).tolist() == [False, False, False]


def test_operations_whose_backward_pytorch_cannot_differentiate_are_taken_apart():
    x, grad = draw(4, 3), draw(4, 4)
    result = reference(lambda x: torch.cdist(x, x + 1)).double_backward(x, grad, {"grad_x": x})["grad_x"]
    leaf = x.clone().double().requires_grad_()
    distance = (leaf[:, None] - leaf[None] - 1).square().sum(-1).sqrt()
    (first,) = torch.autograd.grad(distance, leaf, grad.double(), create_graph=True)
    (second,) = torch.autograd.grad(first, leaf, x.double())
    assert_covered(result, second.float())


def test_forward_mode_survives_operations_in_place_that_break_pytorchs_own():
    x = draw(5)
    for _ in range(2):
        tangent = reference(lambda x: torch.quantile(x, 0.5)).jvp(x, tangents={"x": torch.arange(5.0)})
        assert_covered(tangent["tangent_output"], torch.arange(5.0)[x.argsort()[2]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda A: er.matmul.jvp(A, A, tangents={"C": A}), "no floating tensor input 'C'"),
        (lambda A: er.matmul.jvp(A, A, tangents={}), "give a tensor for at least one of A, B"),
        (lambda A: er.matmul.jvp(A, A, tangents={"A": A[:1]}), r"tangent_A: expected shape \[2, 2\], got \[1, 2\]"),
        (lambda A: er.matmul.double_backward(A, A, A), "needs the inputs, the upstream gradient and a mapping"),
        (lambda A: er.matmul.double_backward(A, A, A, {}), "give a tensor for at least one of grad_A, grad_B"),
        (lambda A: er.matmul.double_backward(A, A, A, {"A": A}), "unknown name 'A'"),
        (
            lambda A: reference(torch.sign, backward=lambda i, o, g: g, surrogate=True).double_backward(
                A, A, {"grad_input": A}
            ),
            "declares its gradient as a surrogate",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(UsageError, match=message):
        call(torch.ones(2, 2))


def test_what_pytorch_cannot_differentiate_is_told(monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("no formula")

    monkeypatch.setattr(torch.func, "jvp", refuse)
    with pytest.raises(
        TraceError, match="no derivative for forward mode of the reference: NotImplementedError: no form"
    ):
        er.tanh.jvp(torch.ones(2), tangents={"input": torch.ones(2)})


def test_tangents_go_through_what_is_subtracted_in_place():
    def hinge(x, t):  # PyTorch computes 1 - x as an in-place difference in new memory
        return torch.nn.functional.hinge_embedding_loss(x, t, reduction="none")

    x, t = torch.tensor([0.3, -0.5, 1.2]), torch.tensor([0.2, 1.0, -1.0])
    found = er.reference(hinge).jvp(x, t, tangents={"x": torch.ones(3)})
    assert found["tangent_output"].covers(torch.tensor([0.0, 1.0, 0.0])).all()


def test_tracing_derivatives_takes_no_memory_of_the_size_of_tensors() -> None:
    terabytes = torch.zeros(()).expand(2**20, 2**20)  # 4 TiB each, were they real
    arguments, wrt = {"x": terabytes, "w": terabytes}, ["x", "w"]

    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.gelu(x) * w

    def backward(inputs: Sequence[Tensor], outputs: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return grads[0] * inputs[1], grads[0] * outputs[0]

    forward = trace(function, arguments)
    programs = [
        derivatives.trace_vjp(function, arguments, wrt, forward),
        derivatives.trace_jvp(function, arguments, wrt, forward),
        derivatives.trace_double_backward(function, arguments, wrt, wrt, forward),
        derivatives.trace_declared(backward, function, arguments, wrt, forward),
    ]
    assert all(program.value_free for program in programs)


@pytest.mark.parametrize("function", [lambda x: x.mT * 2, lambda x: x[0] * 2, lambda x: x @ x.mT])
def test_tangents_of_views_of_a_transposed_input(function):
    x, tangent = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).mT, torch.ones(4, 3)
    (result,) = reference(lambda x: function(x)).jvp(x, tangents={"x": tangent}).values()
    assert result.covers(torch.func.jvp(function, (x,), (tangent,))[1]).all()
