"""Catalogue references: they mean what PyTorch means, cover correct kernels, and catch planted faults."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kernels_core.errors import UsageError
from kernels_core.reference import Reference
from kernels_core.references import attention as attention_file
from kernels_core.references import catalogue

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def entries() -> list[Any]:
    named = {name: (entry, name) for name, entry in catalogue().items()}
    for name, entry in catalogue().items():
        named |= {f"{name}.{algorithm}": (found, name) for algorithm, found in entry.algorithms.items()}
    return [pytest.param(found, base, id=name) for name, (found, base) in named.items()]


every_entry = pytest.mark.parametrize(("reference", "base"), entries())
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[len("torch.") :])


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def arguments(base: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """Return arguments of a catalogue entry, every parameter of attention among them."""

    def t(*shape: int, seed: int = 0) -> torch.Tensor:
        return draw(*shape, dtype=dtype, seed=seed)

    known: dict[str, tuple[Any, ...]] = {
        "matmul": (t(5, 17), t(17, 3)),
        "linear": (t(5, 17), t(3, 17), t(3)),
        "softmax": (t(4, 19),),
        "log_softmax": (t(4, 19),),
        "cross_entropy": (t(6, 9), torch.tensor([0, 8, 3, -100, 3, 1])),
        "layer_norm": (t(4, 16), t(16), t(16, seed=1)),
        "rms_norm": (t(4, 16), t(16)),
        "attention": (t(1, 4, 5, 8), t(1, 2, 7, 8), t(1, 2, 7, 8, seed=1), None, True, None, "bottom-right"),
        "swiglu": (t(4, 9), t(4, 9, seed=1)),
        "geglu": (t(4, 9), t(4, 9, seed=1)),
    }
    return known.get(base, (t(60),))


def run(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[list[torch.Tensor], Any, list[torch.Tensor]]:
    """Return outputs, an upstream gradient as `Reference.backward` takes it, and PyTorch's gradients."""
    leaves = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    result = function(*leaves)
    outputs = list(result) if isinstance(result, tuple) else [result]
    grads = [draw(*out.shape, dtype=out.dtype, seed=7) for out in outputs]
    wrt = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    gradients = list(torch.autograd.grad(outputs, wrt, grads))
    return [out.detach() for out in outputs], tuple(grads) if len(grads) > 1 else grads[0], gradients


def as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


@every_dtype
@every_entry
def test_entry_covers_its_own_evaluation_by_pytorch(reference: Reference, base: str, dtype: torch.dtype) -> None:
    args = arguments(base, dtype)
    outputs, grad, gradients = run(reference.function, args)
    for result, actual in zip(as_list(reference(*args)), outputs, strict=True):
        assert result.covers(actual).all(), result.name
    backward = reference.backward(*args, grad)
    for (name, result), actual in zip(backward.items(), gradients, strict=True):
        assert result.covers(actual).all(), name


@every_dtype
@every_entry
def test_entry_catches_an_output_and_a_gradient_that_are_three_percent_off(
    reference: Reference, base: str, dtype: torch.dtype
) -> None:
    args = arguments(base, dtype)
    outputs, grad, gradients = run(reference.function, args)
    for result, actual in zip(as_list(reference(*args)), outputs, strict=True):
        assert not result.covers(actual * 1.03).all(), result.name
    backward = reference.backward(*args, grad)
    for (name, result), actual in zip(backward.items(), gradients, strict=True):
        assert not result.covers(actual * 1.03).all(), name


@pytest.mark.parametrize(
    ("name", "pytorch"),
    [
        ("matmul", torch.matmul),
        ("linear", F.linear),
        ("softmax", lambda x: F.softmax(x, -1)),
        ("log_softmax", lambda x: F.log_softmax(x, -1)),
        ("cross_entropy", F.cross_entropy),
        ("layer_norm", lambda x, w, b: F.layer_norm(x, (16,), w, b)),
        ("rms_norm", lambda x, w: F.rms_norm(x, (16,), w, 1e-6)),
        ("gelu", F.gelu),
        ("gelu.tanh", lambda x: F.gelu(x, approximate="tanh")),
        ("silu", F.silu),
        ("swiglu", lambda gate, up: F.silu(gate) * up),
        ("geglu", lambda gate, up: F.gelu(gate) * up),
        ("relu", F.relu),
        ("sigmoid", F.sigmoid),
        ("tanh", F.tanh),
        ("softplus", F.softplus),
        ("square", torch.square),
        ("cube", lambda x: x**3),
    ],
)
def test_entry_covers_the_kernel_of_pytorch_for_the_same_function(name: str, pytorch: Callable[..., Any]) -> None:
    base, _, algorithm = name.partition(".")
    reference = catalogue()[base].algorithms[algorithm] if algorithm else catalogue()[base]
    args = arguments(base, torch.float32)
    outputs, grad, gradients = run(pytorch, args)
    assert reference(*args).covers(outputs[0]).all()
    for (label, result), actual in zip(reference.backward(*args, grad).items(), gradients, strict=True):
        assert result.covers(actual).all(), label


def test_attention_covers_scaled_dot_product_attention_with_grouped_heads_and_a_mask() -> None:
    query, key, value, *_ = arguments("attention", torch.float32)
    mask = draw(5, 7) > -0.5
    mask[:, 0] = True
    result = F.scaled_dot_product_attention(query, key, value, mask, scale=0.3, enable_gqa=True)
    assert catalogue()["attention"](query, key, value, mask, scale=0.3).covers(result).all()


def test_attention_alignments_agree_only_where_the_lengths_do() -> None:
    query, key = draw(4, 8), draw(6, 8)
    bottom, top = (
        attention_file.attention(query, key, key, causal=True, alignment=alignment)
        for alignment in attention_file.ALIGNMENTS
    )
    assert torch.equal(top[0], key[0]), "the first query sees the first key only"
    assert torch.equal(bottom[-1], attention_file.attention(query, key, key)[-1]), "the last query sees every key"
    same = [attention_file.attention(key, key, key, causal=True, alignment=a) for a in attention_file.ALIGNMENTS]
    assert torch.equal(*same)


def test_attention_of_a_query_that_sees_nothing_is_zero_and_carries_no_gradient() -> None:
    query, key = draw(7, 8).requires_grad_(), draw(4, 8).requires_grad_()
    output, logsumexp = attention_file.attention_with_logsumexp(query, key, key, causal=True)
    (output.sum() + output.square().sum()).backward()
    assert (output[:3] == 0).all()
    assert (logsumexp[:3] == -math.inf).all()
    assert (query.grad[:3] == 0).all()
    assert query.grad.isfinite().all()
    assert key.grad.isfinite().all()


def test_attention_hides_alike_with_a_boolean_and_an_infinite_mask() -> None:
    query, key = draw(5, 8), draw(6, 8)
    visible = draw(5, 6) > 0
    visible[2] = False
    added = torch.zeros(5, 6).masked_fill(~visible, -math.inf)
    boolean, floating = (attention_file.attention(query, key, key, mask) for mask in (visible, added))
    assert torch.equal(boolean, floating)
    assert (boolean[2] == 0).all()


def test_attention_refuses_an_unknown_alignment_with_the_nearest_name() -> None:
    message = r"alignment='top_left' is not known, did you mean \"top-left\"\?\nuse one of: bottom-right, top-left"
    with pytest.raises(UsageError, match=message):
        attention_file.attention(draw(2, 4), draw(2, 4), draw(2, 4), causal=True, alignment="top_left")


@pytest.mark.parametrize("function", [attention_file.attention, attention_file.attention_with_logsumexp])
@pytest.mark.parametrize("masked", ["no mask", "boolean", "floating"])
def test_flash_backward_is_the_derivative(function: Callable[..., Any], masked: str) -> None:
    query, key, value, *_ = arguments("attention", torch.float64)
    masks = {"no mask": None, "boolean": draw(5, 7) > 0, "floating": draw(4, 1, 7, dtype=torch.float64)}
    args = (query, key, value, masks[masked], masked == "no mask", 0.4, "bottom-right")
    outputs, grad, gradients = run(function, args)
    outputs[1:] = [lse.masked_fill(lse.isinf(), 0.0) for lse in outputs[1:]]
    found = attention_file.flash_backward(args, outputs, grad if isinstance(grad, tuple) else (grad,))
    for declared, derivative in zip(found, gradients, strict=True):
        gap = (declared - derivative).abs().max()
        assert gap <= 2.0**-45 * derivative.abs().max()


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


@every_dtype
def test_flash_judges_a_backward_from_the_output_and_logsumexp_that_it_was_given(dtype: torch.dtype) -> None:
    args = arguments("attention", dtype)
    output, logsumexp = attention_file.attention_with_logsumexp(*args)
    grad = draw(*output.shape, dtype=dtype, seed=7)
    flash = catalogue()["attention"].flash
    right = attention_file.flash_backward(args, (output, logsumexp), (grad,))
    verdicts = flash.backward_covers(*args, grad, outputs=(output, logsumexp), grads=right)
    assert all(covered.all() for covered in verdicts.values())
    without_delta = attention_file.flash_backward(args, (torch.zeros_like(output), logsumexp), (grad,))
    verdicts = flash.backward_covers(*args, grad, outputs=(output, logsumexp), grads=without_delta)
    assert not verdicts["grad_query"].all()
    assert not verdicts["grad_key"].all()
    assert verdicts["grad_value"].all(), "delta does not enter it"
