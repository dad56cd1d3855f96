"""A second derivative in 16 bits is granted one rounding for each place where a tensor is read, and no more."""

from __future__ import annotations

import pytest
import torch

from kernels_core.coverage import Element
from kernels_core.reference import reference

Tensor = torch.Tensor


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def product(a: Tensor, b: Tensor) -> Tensor:
    return (a.float() * b.float()).to(a.dtype)


def upstream_gradient(a: Tensor, b: Tensor, g: Tensor, v: Tensor, w: Tensor):
    vectors = {"grad_a": v, "grad_b": w}
    return reference(product).double_backward(a, b, g, vectors)["grad_grad_output"]


def test_each_term_and_their_sum_are_rounded() -> None:
    a, b, g, v, w = (drawn(400, seed=k) for k in range(5))
    result = upstream_gradient(a, b, g, v, w)
    assert (result.verdict(v * b + w * a) == Element.COVERED).all()  # each of the three in bfloat16
    assert (result.verdict((v.double() * b.double() + w.double() * a.double()).bfloat16()) == Element.COVERED).all()


@pytest.mark.parametrize("wrong", ["a term twice", "a term missing", "a larger term rounded by four bits more"])
def test_no_more_is_granted(wrong: str) -> None:
    a, b, g, v, w = (drawn(400, seed=k) for k in range(5))
    result = upstream_gradient(a, b, g, v, w)
    first, second = v.double() * b.double(), w.double() * a.double()
    coarse = (first * 2.0 ** -first.abs().log2().floor() * 8).round() / 8 * 2.0 ** first.abs().log2().floor()
    found = {"a term twice": first + 2 * second, "a term missing": first,
             "a larger term rounded by four bits more": coarse + second}[wrong]  # fmt: skip
    assert (result.verdict(found.bfloat16()) == Element.VIOLATED).double().mean() > 0.5


def test_float32_is_granted_as_before() -> None:
    a, b, g, v, w = (drawn(400, seed=k).float() for k in range(5))
    result = upstream_gradient(a, b, g, v, w)
    assert (result.verdict(v * b + w * a) == Element.COVERED).all()
    coarse = ((v * b).bfloat16() + (w * a).bfloat16()).float()
    assert (result.verdict(coarse) == Element.VIOLATED).double().mean() > 0.9


def test_a_sum_that_was_moved_has_its_terms_rounded_too() -> None:
    A, B, g = drawn(6, 9, seed=1), drawn(9, 5, seed=2), drawn(5, 6, seed=3)
    vectors = {"grad_A": drawn(6, 9, seed=4), "grad_B": drawn(9, 5, seed=5)}
    transposed = reference(lambda A, B: (A.float() @ B.float()).T.to(A.dtype))
    result = transposed.double_backward(A, B, g, vectors)["grad_grad_output"]
    terms = [vectors["grad_A"].float() @ B.float(), A.float() @ vectors["grad_B"].float()]
    actual = (terms[0].bfloat16() + terms[1].bfloat16()).T
    assert (result.verdict(actual) == Element.COVERED).all()
