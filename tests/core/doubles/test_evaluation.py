"""Programs in double-double: FLINT's value lies within the radius, and correct float64 kernels are decided."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from kernels_core.coverage import Element
from kernels_core.doubles.number import DoubleDouble
from kernels_core.exact.numbers import Numbers
from kernels_core.exact.tier import Cone
from kernels_core.filter import run as filter_
from kernels_core.reference import Check, reference
from tests.core.doubles.containing import require_contains

Tensor = torch.Tensor
D = torch.float64
S = (3, 5)
FUNCTIONS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "matmul": (lambda a, b: a @ b, [(4, 7), (7, 3)]),
    "addmm": (lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2.0), [(3, 4), S, (5, 4)]),
    "batches": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), [(2, 3, 4), (2, 4, 3)]),
    "softmax": (lambda a: a.softmax(-1), [S]),
    "masked softmax": (lambda a: a.masked_fill(torch.ones(S).tril() == 0, float("-inf")).softmax(-1), [S]),
    "log_softmax": (lambda a: a.log_softmax(0), [S]),
    "logsumexp": (lambda a: a.logsumexp(-1), [S]),
    "cross entropy": (lambda a: functional.cross_entropy(a, torch.tensor([0, 4, 2])), [S]),
    "layer norm": (lambda a, b, c: functional.layer_norm(a, (5,), b, c), [S, (5,), (5,)]),
    "rms norm": (lambda a, b: functional.rms_norm(a, (5,), b), [S, (5,)]),
    "gelu": (lambda a: functional.gelu(3 * a), [S]),
    "gelu tanh": (lambda a: functional.gelu(3 * a, approximate="tanh"), [S]),
    "silu": (lambda a: functional.silu(a), [S]),
    "mish": (lambda a: functional.mish(a), [S]),
    "elu": (lambda a: functional.elu(a), [S]),
    "softplus": (lambda a: functional.softplus(20 * a, beta=0.7), [S]),
    "log sigmoid": (lambda a: functional.logsigmoid(a), [S]),
    "functions": (lambda a: a.sin() + a.cos().exp() + a.atan() + a.tan() + a.erf() + a.erfc() + a.expm1(), [S]),
    "logarithms": (lambda a: (a * a).log1p() + (a.abs() + 0.1).log2() + (a.abs() + 1).log10() + a.exp2(), [S]),
    "powers": (lambda a: a**3 + a.abs() ** 2.5 + (a.abs() + 1) ** -1.5 + 2.0**a + a.abs().sqrt() + a.abs() ** 0.3, [S]),
    "choices": (lambda a, b: torch.where(a > b, a, 2 * b).clamp(-0.9, 1.1) + torch.maximum(a, -b).relu(), [S, S]),
    "extrema": (lambda a: a.amax(1) + a.min(1).values + a.sort(-1).values[:, 1], [S]),
    "statistics": (lambda a: a.var(1) + a.std(1, correction=0) + a.mean(1) + torch.linalg.vector_norm(a, dim=1), [S]),
    "norm of order one": (lambda a: torch.linalg.vector_norm(a, ord=1, dim=1), [S]),
    "reading": (lambda a: functional.embedding(torch.tensor([0, 2, 0]), a)[:, torch.tensor([1, 1, 3])], [S]),
    "writing": (lambda a: torch.zeros(S, dtype=D).index_add(0, torch.tensor([0, 0, 1]), a).cumsum(1), [S]),
    "moving": (lambda a: functional.pad(a.flip(0).roll(1, 1), (1, 2), value=0.3).T.reshape(4, 6) * 1.1, [S]),
    "reflection": (lambda a: functional.pad(a[None], (1, 1), mode="reflect") * 0.3, [S]),
    "float32 inside": (lambda a: (a.float() * 2.5).double().exp(), [S]),
    "convolution": (lambda a, b, c: functional.conv1d(a, b, c, stride=2, padding=1), [(2, 4, 9), (6, 4, 3), (6,)]),
    "grouped convolution": (
        lambda a, b: functional.conv2d(a, b, padding=2, dilation=2, groups=2), [(2, 4, 7, 6), (6, 2, 3, 2)]),
    "volume convolution": (lambda a, b: functional.conv3d(a, b, padding=1), [(1, 2, 4, 3, 3), (3, 2, 2, 2, 3)]),
    "transposed convolution": (
        lambda a, b, c: functional.conv_transpose2d(a, b, c, stride=2, groups=2), [(2, 4, 5, 4), (4, 3, 3, 2), (6,)]),
    "products": (lambda a: a.prod(1) + a.prod() + a.cumprod(1)[:, 2], [S]),
    "solve": (lambda a, b: torch.linalg.solve(a, b), [(5, 5), (5, 2)]),
    "inverse": (lambda a: torch.linalg.inv(a), [(2, 4, 4)]),
    "Cholesky": (lambda a: torch.linalg.cholesky(a @ a.mT + a.detach() ** 2 * torch.eye(4, dtype=D)), [(4, 4)]),
    "triangular": (lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False), [(4, 4), (4, 2)]),
    "determinants": (lambda a: torch.linalg.det(a) + torch.linalg.slogdet(a)[1], [(4, 4)]),
    "gamma": (lambda a: torch.lgamma(a * a + 0.1), [S]),
    "special": (lambda a: torch.special.i0(a.tanh()) + torch.special.erfcx(a.tanh()) + torch.erfinv(a.tanh() / 2), [S]),
    "inverse functions": (lambda a: torch.asin(a.tanh() / 2) + torch.asinh(a) + torch.atan2(a, a * a + 1), [S]),
    "pooling": (lambda a: functional.avg_pool1d(a, 3, stride=2) + functional.max_pool1d(a, 3, stride=2), [(1, 2, 7)]),
    "order statistics": (lambda a: a.median(1).values + a.topk(2, 1).values.sum(1), [S]),
    "interpolation": (
        lambda a, b: functional.grid_sample(a, b.tanh(), align_corners=True), [(1, 1, 4, 4), (1, 2, 2, 2)]),
    "logaddexp": (lambda a, b: torch.logaddexp(a, b) * torch.xlogy(a.relu(), b.exp()), [S, S]),
}  # fmt: skip


def drawn(name: str, scale: float = 1.0) -> tuple[Check, Tensor, list[Tensor]]:
    """Return a check, an upstream gradient, and what PyTorch returns."""
    function, shapes = FUNCTIONS[name]
    generator = torch.Generator().manual_seed(7)
    inputs = [torch.randn(shape, generator=generator, dtype=D) * scale for shape in shapes]
    leaves = [value.clone().requires_grad_() for value in inputs]
    output = function(*leaves)
    upstream = torch.randn(output.shape, generator=generator, dtype=D)
    grads = torch.autograd.grad(output, leaves, upstream, allow_unused=True)
    filled = [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, grads, strict=True)]
    names = inspect.signature(function).parameters
    return Check(reference(function), dict(zip(names, inputs, strict=True))), upstream, [output.detach(), *filled]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_correct_kernels_are_covered_without_the_exact_tier(name):
    check, upstream, actual = drawn(name)
    assert filter_.evaluates(check.joint)
    for result, value in zip(check.both([upstream]).values(), actual, strict=True):
        verdict = dataclasses.replace(result, source=None).verdict(value)
        assert bool((verdict == Element.COVERED).all()), (result, verdict)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scale", [1.0, 1e-5, 30.0])
def test_values_contain_those_of_the_exact_tier(name, scale):
    check, upstream, _ = drawn(name, scale)
    for label, result in check.both([upstream]).items():
        index = torch.arange(min(6, result.meta.numel)).numpy()
        if result.source is None or not len(index):
            continue
        cone = Cone(check.joint, label, index, result.source.inputs, result.source.integers, result.budget)
        values = list(cone.evaluate(Numbers(2000)))
        value = result.enclosure
        zero = torch.zeros((), dtype=D)
        found = DoubleDouble(value.mid, zero if value.low is None else value.low, torch.as_tensor(result.rad, dtype=D))
        require_contains(found.each(lambda part, index=index: part.reshape(-1)[index]), values)


@pytest.mark.parametrize("name", ["matmul", "softmax", "layer norm", "gelu"])
def test_kernels_with_float32_inside_are_violated_and_none_of_their_elements_is_open(name):
    check, upstream, actual = drawn(name)
    for result, value in zip(check.both([upstream]).values(), actual, strict=True):
        verdict = dataclasses.replace(result, source=None).verdict(value.float().double())
        assert bool((verdict != Element.UNDECIDED).all())
        assert int((verdict == Element.VIOLATED).sum()) > 0.7 * value.numel()


def test_an_error_of_two_ulps_is_violated_where_half_an_ulp_is_granted():
    """Elementwise in float64: what float64 itself could not tell."""
    x = torch.linspace(1.1, 1.9, 50, dtype=D)
    (result,) = [reference(lambda a, b: a * b)(x, x.flip(0))]
    product = x * x.flip(0)
    assert bool(result.covers(product).all())
    assert bool((dataclasses.replace(result, source=None).verdict(product + 2.0**-50) == Element.VIOLATED).all())


def test_programs_with_free_signs_are_evaluated_in_float64():
    check = Check(reference(lambda a: torch.linalg.svd(a)[1]), {"a": torch.randn(4, 3, dtype=D)})
    assert not filter_.evaluates(check.forward)
