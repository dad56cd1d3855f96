"""The line that is named is the line that was spoilt, with the verdict that fits; and no line where nobody can know."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import Function
from torch.fx.experimental.proxy_tensor import get_proxy_mode

import exactref as er
from kernels_core import rows
from kernels_core.blame import VERDICTS, subject
from kernels_core.report import Blame
from kernels_core.verify import check

FORMULA, PRECISION, NAN = "the formula is wrong here", "precision is lost here", "the first NaN appears here"
CASES = Path(__file__).parents[2] / "cases"


def seeded(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def blamed(kernel, reference, arguments, row: str) -> tuple[Blame, ...]:
    failure = check(kernel, arguments, reference=er.reference(reference)).row(row).failure
    assert failure is not None
    return failure.blame


def backward_of_square(formula):
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return formula(*ctx.saved_tensors, grad)

    return Square


def square(x):
    return x * x


def wrong_constant(x, grad):
    slope = 3 * x
    return slope * grad


def wrong_sign(x, grad):
    first = x * grad
    return first - x * grad * 3


def one_factor_too_many(x, grad):
    scaled = x * grad
    return 2 * scaled * x


def rounded_slope(x, grad):
    slope = (2 * x).bfloat16()
    return slope.float() * grad


def rounded_twice(x, grad):
    a = x.half()
    b = grad.half()
    return 2 * (a * b).float()


def infinite_slope(x, grad):
    slope = 2 * x + (x * 0) / (x * 0)
    return slope * grad


OF_BACKWARDS = [
    (infinite_slope, NAN, "slope = 2 * x + (x * 0) / (x * 0)", ""),
    (wrong_constant, FORMULA, "slope = 3 * x", "with 2 in place of 3 every"),
    (wrong_sign, FORMULA, "return first - x * grad * 3", "with its operands exchanged every"),
    (one_factor_too_many, FORMULA, "return 2 * scaled * x", "without the other operand of its product every"),
    (rounded_slope, PRECISION, "slope = (2 * x).bfloat16()", "without its 1 rounding to bfloat16 every"),
    (rounded_twice, PRECISION, "a = x.half()", "without the 3 roundings to float16 of 3 lines every"),
]


def test_every_verdict_is_given_for_its_fault_and_not_for_those_of_the_others() -> None:
    """The claims are those of the test below: the first line named has the one verdict, whatever the others are."""
    assert {verdict for _, verdict, _, _ in OF_BACKWARDS} == set(VERDICTS)


@pytest.mark.parametrize(("formula", "verdict", "text", "reason"), OF_BACKWARDS)
def test_line_of_a_backward_is_named(formula, verdict: str, text: str, reason: str) -> None:
    found = blamed(backward_of_square(formula), square, (seeded(40),), "grad_x")
    first = found[0]
    assert (first.verdict, first.text) == (verdict, text)
    assert {line.verdict for line in found} == {verdict}
    assert first.reason.startswith(reason)
    file, _, number = first.place.rpartition(":")
    assert Path(file).resolve() == Path(__file__).resolve()
    assert Path(__file__).read_text().splitlines()[int(number) - 1].strip() == text


@pytest.mark.parametrize(
    ("case", "row", "verdict", "text"),
    [
        ("B02", "grad_x", FORMULA, "return r * g * w, (g * (x - m) * r).sum(0), g.sum(0), None, None, None"),
        ("B03", "grad_s", FORMULA, "return p * (g - (g * p).sum(-1, keepdim=True)), None"),
        ("B08", "grad_f", FORMULA, "dx = _reverse_scan(g, f, lambda local, cum, carry: local * cum + carry)"),
        ("B09", "grad_x", FORMULA, "return torch.where(z > ctx.threshold, g, -g * torch.expm1(-z)), None, None"),
        ("B13", "grad_q", FORMULA, "return torch.arange(lk)[None, :] <= torch.arange(lq)[:, None] + shift"),
        ("B19", "grad_w", FORMULA, "dw = (g * xhat)[..., part].sum((0, 3)).reshape(-1)"),
        ("B24", "output", FORMULA, "r = torch.rsqrt(d.square().sum(-1, keepdim=True) / n + EPS)"),
        ("B25", "grad_x", FORMULA, "r = torch.rsqrt(x.square().sum(-1, keepdim=True) / (x.shape[-1] + EPS))"),
        ("B27", "grad_w", FORMULA, "first = g.reshape(-1)[0]"),
        ("B49", "grad_table", FORMULA, "dtable[row] = g[i] * scale[i]"),
        ("B63", "grad_x", FORMULA, "t = torch.tanh(a * (x + b * x * x * x))"),
        ("B16", "grad_k", NAN, "return _backward(q, k, v, out, g, torch.exp(s - lse))"),
        ("B39", "grad_x", NAN, "return (g * y)[..., None] / x"),
        ("B40", "grad_x", NAN, "return x * (g / y)[..., None]"),
        ("B42", "grad_x", NAN, "return g[..., None] * torch.exp(x - y[..., None])"),
        ("B43", "grad_x", NAN, "return (c[first:] * k * torch.pow(x[..., None], k - 1)).sum(-1)"),
        ("B47", "output", NAN, "return (0.5 * p * y + 0.5 * q * x - m * torch.log(m)).sum(-1)"),
        ("B53", "grad_b", PRECISION, "db = db + row"),
        ("B55", "output", PRECISION, "v = (x * x).mean(-1, keepdim=True) - m * m"),
        ("B57", "grad_x", PRECISION, "other = 1 - torch.sigmoid(-xf).to(DTYPE)"),
        ("B60", "output", PRECISION, "return sum(part.to(x.dtype) for part in _partials(x, w))"),
    ],
)
def test_line_of_a_known_case_is_named(
    case: str, row: str, verdict: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "diagnose", lambda evidence: ())  # which takes its time
    module = loaded(case)
    arguments = tuple(module.trigger(torch.Generator().manual_seed(0)).values())
    first = blamed(module.Wrong, module.reference, arguments, row)[0]
    assert (first.verdict, first.text) == (verdict, text)


def loaded(case: str):
    (path,) = CASES.glob(f"{case}_*.py")
    spec = importlib.util.spec_from_file_location(f"blamed_{case}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_callers_of_a_line_in_a_shared_function_are_named() -> None:
    module = loaded("B13")
    arguments = tuple(module.trigger(torch.Generator().manual_seed(0)).values())
    (found,) = blamed(module.Wrong, module.reference, arguments, "grad_v")
    lines = Path(module.__file__).read_text().splitlines()
    called = [lines[int(place.rpartition(":")[2]) - 1].strip() for place in found.callers]
    assert called == ["p = torch.where(_visible(q.shape[-2], k.shape[-2], shift), p, torch.zeros_like(p))",
                      "return _backward(ctx, g, 0)"]  # fmt: skip


def test_line_of_a_plain_callable_is_named() -> None:
    def kernel(x):
        y = x.half().float()
        return y * y

    (found,) = blamed(kernel, square, (seeded(40),), "output")
    assert (found.verdict, found.text) == (PRECISION, "y = x.half().float()")


def test_line_of_a_function_inside_of_a_callable_is_named() -> None:
    inner = backward_of_square(wrong_constant)

    def kernel(x):
        y = x.clone()
        y.mul_(0.5)
        return inner.apply(y) * 4

    (found, *_) = blamed(kernel, square, (seeded(40),), "grad_x")
    assert (found.verdict, found.text) == (FORMULA, "slope = 3 * x")


def test_kernel_that_leaves_pytorch_has_no_line() -> None:
    def kernel(x):
        return torch.from_numpy(x.detach().numpy() * 3)

    assert blamed(kernel, square, (seeded(40),), "output") == ()


def test_fault_that_the_operations_one_by_one_do_not_show_has_no_line() -> None:
    def kernel(x):  # what its operations are when it is looked at is not what it did
        return x * x * (3 if get_proxy_mode() is None else 1)

    assert blamed(kernel, square, (seeded(40),), "output") == ()


def test_line_of_a_loop_is_changed_in_every_run() -> None:
    def formula(x, grad):
        total = torch.zeros_like(x)
        for part in (x * 1.25, x / 4, x / 2):
            total = total - part * grad
        return total

    (found,) = blamed(backward_of_square(formula), square, (seeded(40),), "grad_x")
    assert (found.verdict, found.text) == (FORMULA, "total = total - part * grad")
    assert found.reason == "with the other sign in all of its 3 runs every element is covered"


def test_gradient_that_the_upstream_gradient_never_enters_is_named() -> None:
    def formula(x, grad):
        first = x.exp().log()
        second = first + x.neg().abs() * x.sign()
        third = second * 3
        return third / 3

    (found,) = blamed(backward_of_square(formula), square, (seeded(40),), "grad_x")
    assert (found.verdict, found.text, found.reason) == (FORMULA, "return third / 3", "grad_output does not enter")


def test_sum_of_the_upstream_gradient_is_no_fault_where_it_is_right() -> None:
    def formula(x, grad):
        total = grad.sum()
        return total * 3 * x

    (found, *_) = blamed(backward_of_square(formula), lambda x: (x * x).sum().expand(40), (seeded(40),), "grad_x")
    assert found.text == "return total * 3 * x"


def test_runs_of_a_line_that_read_different_operands_are_no_loop() -> None:
    def formula(x, grad):
        return 3 * (x * grad * 1024) / 1024 * (x * 0 + 1)

    (found, *_) = blamed(backward_of_square(formula), square, (seeded(40),), "grad_x")
    assert found.verdict == FORMULA


def test_line_that_only_makes_zeros_is_not_blamed() -> None:
    def formula(x, grad):
        total = x.new_zeros(40)
        total = total + (x + 1).exp() * grad
        return total

    (found,) = blamed(backward_of_square(formula), square, (seeded(40),), "grad_x")
    assert found.text == "total = total + (x + 1).exp() * grad"


def test_two_lines_are_named_where_these_inputs_cannot_tell_which() -> None:
    def formula(x, grad):
        slope = x * 6
        half = slope * 0.5
        return half * grad

    first, second = blamed(backward_of_square(formula), square, (seeded(40),), "grad_x")
    assert (first.text, second.text) == ("slope = x * 6", "half = slope * 0.5")
    assert second.reason.startswith("or with ")


def test_search_that_runs_out_of_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "SECONDS", 0.0)
    (found,) = blamed(backward_of_square(rounded_twice), square, (seeded(40),), "grad_x")
    assert found.verdict == "the search for the line was cut short"
