"""Attention: what its conventions say of masks, positions and rows that see nothing, and its declared backward."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from benchmarks.catalogue_examples import EXAMPLES, Draw
from kernels_core.errors import UsageError
from kernels_core.references import catalogue
from kernels_core.references.attention.flash import flash_backward
from kernels_core.references.attention.forward import attention, attention_with_logsumexp
from kernels_core.references.attention.scores import ALIGNMENTS
from kernels_core.references.attention.varlen import attention_varlen_with_logsumexp, flash_backward_varlen
from kernels_core.tracing.arguments import with_defaults
from tests.core.references.evaluation import evaluated

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return Draw(dtype, seed + sum(shape)).normal(*shape)


def test_attention_covers_scaled_dot_product_attention_with_grouped_heads_and_a_mask() -> None:
    query, key, value = (EXAMPLES["attention"](Draw(torch.float32))[name] for name in ("query", "key", "value"))
    mask = draw(5, 7) > -0.5
    mask[:, 0] = True
    result = F.scaled_dot_product_attention(query, key, value, mask, scale=0.3, enable_gqa=True)
    assert catalogue()["attention"](query, key, value, mask, scale=0.3).covers(result).all()


def test_attention_alignments_agree_only_where_the_lengths_do() -> None:
    query, key = draw(4, 8), draw(6, 8)
    bottom, top = (attention(query, key, key, causal=True, alignment=alignment) for alignment in ALIGNMENTS)
    assert torch.equal(top[0], key[0]), "the first query sees the first key only"
    assert torch.equal(bottom[-1], attention(query, key, key)[-1]), "the last query sees every key"
    same = [attention(key, key, key, causal=True, alignment=alignment) for alignment in ALIGNMENTS]
    assert torch.equal(*same)


def test_attention_of_a_query_that_sees_nothing_is_zero_and_carries_no_gradient() -> None:
    query, key = draw(7, 8).requires_grad_(), draw(4, 8).requires_grad_()
    output, logsumexp = attention_with_logsumexp(query, key, key, causal=True)
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
    boolean, floating = (attention(query, key, key, mask) for mask in (visible, added))
    assert torch.equal(boolean, floating)
    assert (boolean[2] == 0).all()


def test_attention_with_a_window_is_attention_with_the_mask_of_that_band() -> None:
    query, key = draw(5, 8), draw(7, 8)
    place = torch.arange(7) - torch.arange(2, 7)[:, None]
    band = (place >= -2) & (place <= 1)
    assert torch.equal(attention(query, key, key, window=(2, 1)), attention(query, key, key, band))
    assert torch.equal(attention(query, key, key, window=(-1, 0)), attention(query, key, key, causal=True))


def test_attention_with_slopes_adds_the_distance_and_a_softcap_bends_before_it() -> None:
    query, key = draw(2, 5, 8), draw(2, 5, 8, seed=1)
    slopes = torch.tensor([0.5, 0.25])
    distance = (torch.arange(5) - torch.arange(5)[:, None]).abs()
    bent = 2 * torch.tanh(query @ key.transpose(-1, -2) / math.sqrt(8) / 2)
    expected = torch.softmax(bent - slopes[:, None, None] * distance, -1) @ key
    assert catalogue()["attention"](query, key, key, softcap=2.0, slopes=slopes).covers(expected).all()


def test_attention_varlen_is_attention_of_each_sequence_and_zero_elsewhere() -> None:
    args = EXAMPLES["attention_varlen, everything"](Draw(torch.float32))
    query, key, value = (F.pad(args.pop(name), (0, 0, 0, 0, 0, 1)) for name in ("query", "key", "value"))
    rows, columns = args.pop("query_offsets"), args.pop("key_offsets")
    found, _ = attention_varlen_with_logsumexp(query, key, value, rows, columns, **args)
    for s in range(3):
        inside, seen = slice(rows[s], rows[s + 1]), slice(columns[s], columns[s + 1])
        parts = (t.transpose(0, 1) for t in (query[inside], key[seen], value[seen]))
        assert torch.allclose(attention(*parts, **args).transpose(0, 1), found[inside], atol=1e-6)
    assert (found[rows[-1] :] == 0).all(), "a token behind the last offset"


def test_attention_refuses_an_unknown_alignment_with_the_nearest_name() -> None:
    message = r"alignment='top_left' is not known, did you mean \"top-left\"\?\nuse one of: bottom-right, top-left"
    with pytest.raises(UsageError, match=message):
        attention(draw(2, 4), draw(2, 4), draw(2, 4), causal=True, alignment="top_left")


@pytest.mark.parametrize("function", [attention, attention_with_logsumexp])
@pytest.mark.parametrize("masked", ["no mask", "boolean", "floating"])
def test_flash_backward_is_the_derivative(function: Callable[..., Any], masked: str) -> None:
    masks = {"no mask": None, "boolean": draw(5, 7) > 0, "floating": draw(4, 1, 7, dtype=torch.float64)}
    args = EXAMPLES["attention, softcap"](Draw(torch.float64)) | {"mask": masks[masked], "causal": masked == "no mask"}
    assert_derivative(function, flash_backward, args)


@pytest.mark.parametrize("name", ["attention_varlen", "attention_varlen, everything"])
def test_flash_backward_of_packed_sequences_is_the_derivative(name: str) -> None:
    args = EXAMPLES[name](Draw(torch.float64))
    assert_derivative(attention_varlen_with_logsumexp, flash_backward_varlen, args)


def assert_derivative(function: Callable[..., Any], declared: Callable[..., Any], args: dict[str, Any]) -> None:
    outputs, grad, gradients = evaluated(function, args)
    outputs[1:] = [lse.masked_fill(lse.isinf(), 0.0) for lse in outputs[1:]]
    inputs = tuple(with_defaults(function, args).values())
    found = declared(inputs, outputs, grad if isinstance(grad, tuple) else (grad,))
    for own, derivative in zip(found, gradients, strict=True):
        assert (own - derivative).abs().max() <= 2.0**-45 * derivative.abs().max()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flash_judges_a_backward_from_the_output_and_logsumexp_that_it_was_given(dtype: torch.dtype) -> None:
    args = tuple(with_defaults(attention, EXAMPLES["attention"](Draw(dtype))).values())
    output, logsumexp = attention_with_logsumexp(*args)
    grad = draw(*output.shape, dtype=dtype, seed=7)
    flash = catalogue()["attention"].flash
    right = flash_backward(args, (output, logsumexp), (grad,))
    verdicts = flash.backward_covers(*args, grad, outputs=(output, logsumexp), grads=right)
    assert all(covered.all() for covered in verdicts.values())
    without_delta = flash_backward(args, (torch.zeros_like(output), logsumexp), (grad,))
    verdicts = flash.backward_covers(*args, grad, outputs=(output, logsumexp), grads=without_delta)
    assert not verdicts["grad_query"].all()
    assert not verdicts["grad_key"].all()
    assert verdicts["grad_value"].all(), "delta does not enter it"
