"""What entries of the catalogue mean: PyTorch's function of the same name, and the conventions in their docstrings."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from benchmarks.catalogue_examples import EXAMPLES, Draw
from kernels_core.errors import UsageError
from kernels_core.references import catalogue
from tests.core.references.evaluation import evaluated

Tensor = torch.Tensor


def draw(*shape: int, seed: int = 0) -> Tensor:
    return Draw(torch.float32, seed + sum(shape)).normal(*shape)


def of_batch(
    input: Tensor, weight: Tensor, bias: Tensor, running_mean: Tensor, running_var: Tensor, **_: Any
) -> Tensor:
    return F.batch_norm(input, running_mean.detach(), running_var.detach(), weight, bias)


def optimised(
    kind: type[torch.optim.Optimizer], names: tuple[str, ...], settings: dict[str, Any]
) -> Callable[..., Any]:
    """Return one step of an optimiser of PyTorch as a function of the parameter, the gradient and its state."""

    def step(parameter: Tensor, grad: Tensor, *, step: int = 1, **state: Any) -> tuple[Tensor, ...]:
        leaf = torch.nn.Parameter(parameter.detach().clone())
        optimiser = kind([leaf], **settings)
        leaf.grad = grad.detach().clone()
        own = {name: state[name].detach().clone() for name in names}
        optimiser.state[leaf] = {"step": torch.tensor(float(step - 1)), **own}
        optimiser.step()
        return (leaf.detach(), *own.values())

    return step


MOMENTS = ("exp_avg", "exp_avg_sq")
SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}


@pytest.mark.parametrize(
    ("name", "pytorch"),
    [
        ("matmul", lambda A, B: A @ B),
        ("linear", F.linear),
        ("conv1d", F.conv1d),
        ("conv2d", F.conv2d),
        ("conv3d", F.conv3d),
        ("conv_transpose1d", F.conv_transpose1d),
        ("conv_transpose2d", F.conv_transpose2d),
        ("conv_transpose3d", F.conv_transpose3d),
        ("softmax", lambda input: F.softmax(input, -1)),
        ("log_softmax", lambda input: F.log_softmax(input, -1)),
        ("cross_entropy", F.cross_entropy),
        ("kl_div", F.kl_div),
        ("kl_div, of logarithms", F.kl_div),
        ("layer_norm", lambda input, weight, bias: F.layer_norm(input, (16,), weight, bias)),
        ("rms_norm", lambda input, weight: F.rms_norm(input, (16,), weight, 1e-6)),
        ("batch_norm", lambda input, weight, bias: F.batch_norm(input, None, None, weight, bias, training=True)),
        ("batch_norm.folded, evaluation", of_batch),
        ("group_norm.folded", F.group_norm),
        ("instance_norm", lambda input, weight, bias: F.instance_norm(input, None, None, weight, bias)),
        ("embedding", lambda indices, weight, padding_idx: F.embedding(indices, weight, padding_idx)),
        ("gelu", F.gelu),
        ("gelu.tanh", lambda input: F.gelu(input, approximate="tanh")),
        ("silu", F.silu),
        ("swiglu", lambda gate, up: F.silu(gate) * up),
        ("geglu", lambda gate, up: F.gelu(gate) * up),
        ("relu", F.relu),
        ("sigmoid", F.sigmoid),
        ("tanh", F.tanh),
        ("softplus", F.softplus),
        ("square", torch.square),
        ("cube", lambda input: input**3),
    ],
)
def test_entry_covers_the_kernel_of_pytorch_for_the_same_function(name: str, pytorch: Callable[..., Any]) -> None:
    title, comma, setting = name.partition(",")
    base, _, algorithm = title.partition(".")
    reference = catalogue()[base].algorithms[algorithm] if algorithm else catalogue()[base]
    args = EXAMPLES[base + comma + setting](Draw(torch.float32))
    outputs, grad, gradients = evaluated(pytorch, args)
    assert reference(**args).covers(outputs[0]).all()
    for (label, result), actual in zip(reference.backward(grad, **args).items(), gradients, strict=True):
        assert result.covers(actual).all() or label in ("grad_running_mean", "grad_running_var"), label


@pytest.mark.parametrize(
    ("name", "settings", "pytorch"),
    [
        ("sgd_step", {}, optimised(torch.optim.SGD, ("momentum_buffer",), SGD)),
        ("adam_step", {}, optimised(torch.optim.AdamW, MOMENTS, {"weight_decay": 0.1})),
        ("adam_step, coupled", {"step": 1}, optimised(torch.optim.Adam, MOMENTS, {"weight_decay": 0.1})),
    ],
)
def test_update_step_covers_that_of_pytorchs_optimiser(
    name: str, settings: dict[str, Any], pytorch: Callable[..., Any]
) -> None:
    args = EXAMPLES[name](Draw(torch.float32)) | settings
    entry = catalogue()[name.partition(",")[0]]
    reference = entry.algorithms.get("lerp", entry)
    state = {key: value for key, value in args.items() if isinstance(value, Tensor) or key == "step"}
    for result, actual in zip(reference(**args), pytorch(**state), strict=True):
        assert result.covers(actual).all(), result.name


def test_one_pass_layer_norm_is_unconstrained_where_two_pass_is_not() -> None:
    x = 1000 + 0.01 * draw(4, 16)
    entry = catalogue()["layer_norm"]
    actual = F.layer_norm(x, (16,))
    assert entry.two_pass(x).covers(actual).all()
    assert not entry.one_pass(x).covers(actual).any()


def test_softplus_follows_the_threshold_on_beta_times_input() -> None:
    x = torch.tensor([4.0, 6.0])
    result = catalogue()["softplus"](x, 2.0, 10.0)
    assert result.covers(torch.tensor([math.log1p(math.exp(8)) / 2, 6.0])).all()


def test_cross_entropy_leaves_ignored_rows_out_of_the_mean() -> None:
    logits, target = draw(3, 4), torch.tensor([1, -100, 2])
    kept = -torch.log_softmax(logits[[0, 2]], -1)[[0, 1], [1, 2]].mean()
    assert catalogue()["cross_entropy"](logits, target).covers(kept).all()


def test_cross_entropy_adds_the_squared_logsumexp_of_the_rows_that_count() -> None:
    logits, target = draw(3, 4), torch.tensor([1, -100, 2])
    squares = torch.logsumexp(logits[[0, 2]], -1).square()
    for reduction, added in (("mean", squares.mean()), ("sum", squares.sum())):
        plain = F.cross_entropy(logits, target, reduction=reduction)
        assert catalogue()["cross_entropy"](logits, target, reduction, z_loss=0.1).covers(plain + 0.1 * added).all()


def test_linear_cross_entropy_is_the_cross_entropy_of_a_linear_layer() -> None:
    args = EXAMPLES["linear_cross_entropy"](Draw(torch.float32))
    logits = F.linear(args["input"], args["weight"], args["bias"])
    assert catalogue()["linear_cross_entropy"](**args).covers(F.cross_entropy(logits, args["target"])).all()


@pytest.mark.parametrize("name", ["kl_div", "jsd", "focal_loss"])
def test_loss_refuses_an_unknown_reduction_with_the_nearest_name(name: str) -> None:
    with pytest.raises(UsageError, match="reduction='means' is not known, did you mean \"mean\""):
        catalogue()[name].function(draw(2, 3), draw(2, 3), reduction="means")


def test_jsd_of_equal_distributions_is_zero_and_of_disjoint_ones_the_entropy_of_beta() -> None:
    p = torch.log_softmax(draw(2, 5), -1)
    assert catalogue()["jsd"].function(p, p).abs() < 1e-6
    apart = torch.tensor([[0.0, -1e4], [-1e4, 0.0]])
    assert catalogue()["jsd"].function(apart, apart.flip(0)) == pytest.approx(math.log(2))


def test_focal_loss_without_focus_is_the_weighted_binary_cross_entropy() -> None:
    x, t = draw(4, 5), (draw(4, 5, seed=1) > 0).float()
    plain = 0.5 * F.binary_cross_entropy_with_logits(x, t)
    assert catalogue()["focal_loss"](x, t, 0.5, 0.0).covers(plain).all()


@pytest.mark.parametrize("name", ["sparsemax", "sparsemax.shifted", "entmax15"])
def test_sparse_softmax_adds_up_to_one_and_moves_with_nothing_added_to_all(name: str) -> None:
    entry, _, algorithm = name.partition(".")
    function = (catalogue()[entry].algorithms.get(algorithm) or catalogue()[entry]).function
    x = draw(4, 9).double()
    p = function(x)
    assert (p.sum(-1) - 1).abs().max() < 1e-12
    assert (p == 0).any()
    assert (function(x + 5) - p).abs().max() < 1e-12
    assert torch.equal(function(x.T, 0), p.T)


@pytest.mark.parametrize("name", ["gated_scan", "linear_attention", "selective_scan"])
def test_scan_in_closed_form_is_the_recurrence(name: str) -> None:
    entry = catalogue()[name]
    args = EXAMPLES[name](Draw(torch.float64))
    recurrent, closed = entry.function(**args), entry.parallel.function(**args)
    assert (recurrent - closed).abs().max() < 1e-13


def test_causal_conv1d_continues_from_its_state() -> None:
    x, weight = draw(2, 3, 9), draw(3, 4)
    step = catalogue()["causal_conv1d"].with_state.function
    first, state = step(x[..., :5], weight)
    second, _ = step(x[..., 5:], weight, initial_state=state)
    whole = catalogue()["causal_conv1d"].function(x, weight)
    assert torch.allclose(torch.cat([first, second], -1), whole, atol=1e-6)


def test_causal_conv1d_refuses_an_activation_that_it_does_not_have() -> None:
    with pytest.raises(UsageError, match="activation='relu' is not known\nuse one of: silu, None"):
        catalogue()["causal_conv1d"].function(draw(1, 2, 5), draw(2, 3), activation="relu")


def test_rotary_embedding_keeps_the_length_of_each_pair() -> None:
    x, angle = draw(5, 8).double(), draw(5, 4).double()
    for interleaved in (False, True):
        turned = catalogue()["rotary_embedding"].function(x, angle.cos(), angle.sin(), interleaved)
        pairs = [t.unflatten(-1, (4, 2) if interleaved else (2, 4)) for t in (x, turned)]
        lengths = [t.square().sum(-1 if interleaved else -2) for t in pairs]
        assert (lengths[0] - lengths[1]).abs().max() < 1e-12


def test_dropout_of_an_infinity_that_is_dropped_is_zero() -> None:
    x = torch.tensor([math.inf, 1.0])
    assert catalogue()["dropout"].function(x, torch.tensor([False, True]), 0.5).tolist() == [0.0, 2.0]


def test_fake_quantize_passes_the_gradient_only_where_nothing_was_clamped() -> None:
    x, scale = torch.tensor([0.1, 40.0, -40.0]), torch.tensor(0.25)
    found = catalogue()["fake_quantize"].backward(x, scale, torch.ones(3), wrt=["input"])
    assert found["grad_input"].covers(torch.tensor([1.0, 0.0, 0.0])).all()
    assert not found["grad_input"].covers(torch.ones(3)).all()


def test_fake_quantize_admits_both_neighbours_only_where_the_quotient_is_near_a_tie() -> None:
    scale = torch.tensor(0.1)
    result = catalogue()["fake_quantize"](torch.tensor([0.25, 0.26]), scale)
    assert result.covers(torch.tensor([2.0, 3.0]) * scale).all()
    assert result.covers(torch.tensor([3.0, 3.0]) * scale).all()
    assert not result.covers(torch.tensor([2.0, 2.0]) * scale).all()
