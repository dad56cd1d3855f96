"""Complex inputs, outputs and gradients: PyTorch's convention, both parts decided, by every way of asking."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

import exactref as er
from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.reference import reference
from kernels_core.report import Outcome, Verdict
from kernels_core.tracing.derivatives import load_forward_mode
from kernels_core.verify import verify

COMPLEX = [torch.complex64, torch.complex128]
FUNCTIONS = {
    "product": lambda z, w: z * w,
    "quotient": lambda z, w: z / w,
    "modulus": lambda z, w: (z * w).abs(),
    "conjugate": lambda z, w: z.conj() * w,
    "parts": lambda z, w: z.imag + w.real,
    "matrix product": lambda z, w: z @ w.mH,
    "exponential": lambda z, w: torch.exp(z) + torch.log(w),
    "square": lambda z, w: z**2 + w,
    "constant": lambda z, w: z * (2.5 + 1j) - w,
    "choice": lambda z, w: torch.where(z.real > 0, z, w),
    "transform": lambda z, w: torch.fft.fft(z) * w,
    "sum": lambda z, w: (z * w).sum(-1),
    "moved": lambda z, w: torch.roll(z, 1, -1) * torch.tril(w),
    "sigmoid": lambda z, w: torch.sigmoid(z) * torch.atan(w),
}


def numbers(*shape, dtype=torch.complex64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.complex128).to(dtype)


class Product(Function):
    @staticmethod
    def forward(ctx, z, w):
        ctx.save_for_backward(z, w)
        return z * w

    @staticmethod
    def backward(ctx, g):
        z, w = ctx.saved_tensors
        return g * w.conj(), g * z.conj()


class WithoutConjugate(Product):
    @staticmethod
    def backward(ctx, g):
        z, w = ctx.saved_tensors
        return g * w, g * z


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_pytorch_is_covered_with_its_gradients_and_a_conjugated_gradient_is_not(name, dtype):
    function, given = FUNCTIONS[name], (numbers(3, 4, dtype=dtype), numbers(3, 4, dtype=dtype, seed=1))
    leaves = [t.clone().requires_grad_() for t in given]
    output = function(*leaves)
    grad = torch.randn_like(output.detach())
    output.backward(grad)
    result, found = er.reference(function)(*given), er.reference(function).backward(*given, grad)
    assert result.covers(output.detach()).all()
    for leaf, label in zip(leaves, ("grad_z", "grad_w"), strict=True):
        assert found[label].covers(leaf.grad).all()
        away = leaf.grad.imag.abs() > 1e-3
        assert not found[label].covers(leaf.grad.conj().resolve_conj())[away].any()


def test_parts_are_decided_one_by_one_and_an_element_is_covered_where_both_are():
    z, w = numbers(6), numbers(6, seed=1)
    result, right = er.reference(lambda z, w: z * w)(z, w), z * w
    wrong = right.clone()
    wrong[1], wrong[2] = wrong[1] + 0.1, wrong[2] + 0.1j
    assert result.verdict(wrong).tolist() == [0, Element.VIOLATED, Element.VIOLATED, 0, 0, 0]
    assert result.real.covers(wrong.real.contiguous()).tolist() == [True, False, True, True, True, True]
    assert (result.exact - right).abs().max() < 1e-6
    assert result.exact.dtype == torch.complex128
    assert (result.lower.real <= right.real).all()
    assert (result.upper.imag >= right.imag).all()
    assert repr(result) == "ComplexResult(output, complex64[6])"
    with pytest.raises(er.UsageError, match="expected dtype complex64, got float32"):
        result.covers(right.real.contiguous())


def test_a_check_has_a_row_for_each_part_and_the_battery_runs():
    items = ["grad_output_layout", "canaries", "none_gradient", "zero_grad_output", "determinism", "double_backward"]
    items += ["grad_output_values", "raw_backward", "same_pointers", "unwritten"]
    report = er.check(Product, (numbers(4, 3), numbers(4, 3, seed=1)), battery=items)
    assert report.covered
    names = [f"{name}.{part}" for name in ("output", "grad_z", "grad_w") for part in ("real", "imag")]
    assert [(row.name, row.dtype) for row in report.tensors] == [(name, "float32") for name in names]
    assert {row.outcome for row in report.battery} <= {Outcome.PASS, Outcome.NOT_APPLICABLE}


def test_a_gradient_without_the_conjugate_is_violated():
    report = er.check(WithoutConjugate, (numbers(4, 3), numbers(4, 3, seed=1)))
    assert report.verdict is er.Verdict.VIOLATED
    assert report.row("output.real").verdict is er.Verdict.COVERED
    assert report.row("grad_z.imag").verdict is er.Verdict.VIOLATED


def test_a_missing_complex_gradient_counts_as_zero_in_both_parts():
    class Missing(Product):
        @staticmethod
        def backward(ctx, g):
            return Product.backward(ctx, g)[0], None

    report = er.check(Missing, (numbers(4, 3), numbers(4, 3, seed=1)), battery=["none_gradient"])
    assert [report.row(f"grad_w.{part}").violated for part in ("real", "imag")] == [12, 12]
    assert report.battery[0].outcome is Outcome.FAIL


def test_a_real_output_where_the_reference_has_a_complex_one_is_violated():
    report = er.check(lambda z: z.real.clone(), (numbers(3),), reference=lambda z: z * 1, battery="none", wrt=[])
    assert [row.verdict for row in report.tensors] == [er.Verdict.VIOLATED] * 2
    assert "expected the parts of a complex tensor, got float32" in report.tensors[0].note


def test_products_of_either_order_of_accumulation_are_covered():
    """Real and imaginary terms in turn, or the real product of each pair first: 2 K terms in any order."""
    a, b = numbers(2, 300), numbers(300, 2, seed=1)
    result = er.reference(lambda a, b: a @ b)(a, b)
    turn = torch.zeros(2, 2)
    for k in range(300):
        turn = turn + a.real[:, k : k + 1] * b.real[k : k + 1]
        turn = turn - a.imag[:, k : k + 1] * b.imag[k : k + 1]
    assert result.real.covers(turn).all()
    assert result.covers(a @ b).all()


def test_forward_mode_and_the_second_order_of_complex_functions_cover_pytorch():
    z, v, grad = numbers(5), numbers(5, seed=1), numbers(5, seed=2)
    ref = er.reference(lambda z: z * z.conj() * z)
    load_forward_mode()
    _, tangent = torch.func.jvp(ref.function, (z,), (v,))
    assert ref.jvp(z, tangents={"z": v})["tangent_output"].covers(tangent).all()
    leaf, up = z.clone().requires_grad_(), grad.clone().requires_grad_()
    (first,) = torch.autograd.grad(ref.function(leaf), leaf, up, create_graph=True)
    second = torch.autograd.grad(first, (leaf, up), v)
    found = ref.double_backward(z, grad, {"grad_z": v})
    for name, value in zip(("grad_z", "grad_grad_output"), second, strict=True):
        assert found[name].covers(value.resolve_conj()).all()


def test_a_declared_backward_gets_complex_tensors():
    def backward(inputs, outputs, grads):
        return grads[0] * inputs[1].conj(), grads[0] * inputs[0].conj()

    z, w, grad = numbers(4), numbers(4, seed=1), numbers(4, seed=2)
    found = er.reference(lambda z, w: z * w, backward=backward).backward(z, w, grad)
    assert found["grad_z"].covers(grad * w.conj()).all()


def test_real_and_complex_inputs_and_outputs_go_together():
    def function(z, x, index):
        return z[index] * x, z.abs().sum(-1), index + 1

    z, x, index = numbers(4, 3), torch.randn(3), torch.tensor([2, 0])
    leaves = [z.clone().requires_grad_(), x.clone().requires_grad_()]
    first, second, third = function(*leaves, index)
    grads = (torch.randn_like(first.detach()), torch.randn_like(second.detach()))
    torch.autograd.backward([first, second], list(grads))
    results = er.reference(function)(z, x, index)
    assert results[0].covers(first.detach()).all()
    assert results[1].covers(second.detach()).all()
    assert results[2].covers(third).all()
    found = er.reference(function).backward(z, x, index, grads)
    assert found["grad_z"].covers(leaves[0].grad).all()
    assert found["grad_x"].covers(leaves[1].grad).all()


def test_half_complex_tensors_are_refused():
    with pytest.warns(UserWarning, match="ComplexHalf"):
        z = numbers(2).to(torch.complex32)
    with pytest.raises(er.UsageError, match="z: complex32 tensors are not supported"):
        Check(reference(lambda z: z), {"z": z})


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_edge_rows_of_complex_formats_get_their_verdict(dtype):
    """Each part by itself: NaN, infinities, zeros, and the smallest subnormal."""
    real = torch.float32 if dtype is torch.complex64 else torch.float64
    eta = torch.finfo(real).smallest_normal * torch.finfo(real).eps
    inf, nan = torch.inf, torch.nan
    rows = [
        (complex(1, nan), complex(1, nan), True),
        (complex(1, nan), complex(nan, 1), False),
        (complex(1, nan), complex(1, 1), False),
        (complex(inf, 2), complex(inf, 2), True),
        (complex(inf, 2), complex(-inf, 2), False),
        (complex(2, -inf), complex(2, inf), False),
        (complex(0.0, -0.0), complex(-0.0, 0.0), True),
        (complex(eta, 0), complex(eta, 0), True),
        (complex(eta, 0), complex(0, 0), False),
        (complex(0, eta), complex(0, 2 * eta), False),
    ]
    z, actual = (torch.tensor([row[place] for row in rows], dtype=torch.complex128).to(dtype) for place in (0, 1))
    result = er.reference(lambda z: z.conj().resolve_conj())(z.conj().resolve_conj())
    assert result.covers(actual).tolist() == [row[2] for row in rows]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_an_output_of_complex32_is_two_float16_numbers() -> None:
    z = torch.view_as_complex(torch.randn(5, 2, generator=torch.Generator().manual_seed(0)))
    report = verify(lambda z: z.to(torch.complex32), {"z": z}, battery="all")
    assert [(t.name, t.dtype) for t in report.tensors[:2]] == [("output.real", "float16"), ("output.imag", "float16")]
    assert report.verdict is Verdict.COVERED, report
