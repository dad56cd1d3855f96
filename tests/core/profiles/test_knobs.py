"""Knobs: what each grants, by simulated evaluations, and what is said of mistakes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import exactref as er
from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.errors import UsageError
from kernels_core.profiles import PROFILES, resolve
from kernels_core.reference import reference
from kernels_core.result import Result
from tests.core.profiles import simulated

total = reference(lambda x: x.sum(-1), name="total")
product = reference(lambda a, b: a @ b, name="product")


def admitted(plain: er.Reference, profile: object, **inputs: np.ndarray | torch.Tensor) -> Result:
    given = {name: torch.as_tensor(value) for name, value in inputs.items()}
    return Check(plain, given, profile=profile).outputs()["output"]


def covers(result: Result, actual: np.ndarray) -> bool:
    return bool(result.covers(torch.from_numpy(np.asarray(actual)).to(result.meta.dtype)).all())


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape).astype(np.float32)


@pytest.mark.parametrize("n", [2, 7, 64, 1000])
def test_pairwise_sum_is_covered_by_its_order(n: int) -> None:
    x = uniform(64, n)
    result = admitted(total, "ieee,order=pairwise", x=x)
    assert covers(result, simulated.pairwise(x))


def test_sequential_sum_breaks_the_grant_of_a_pairwise_one() -> None:
    x = np.full((1, 1 << 20), 0.1, np.float32)
    actual = simulated.sequential(x, "float32")
    assert covers(admitted(total, "ieee", x=x), actual)
    assert not covers(admitted(total, "ieee,order=pairwise", x=x), actual)


@pytest.mark.parametrize("n", [5, 64, 1000])
def test_blocked_sum_is_covered_by_its_order_and_far_less_is_granted(n: int) -> None:
    x = uniform(64, n)
    actual = np.zeros(64, np.float32)
    for start in range(0, n, 32):
        actual = actual + simulated.sequential(x[:, start : start + 32], "float32").astype(np.float32)
    narrow, wide = admitted(total, "ieee,order=blocked:32", x=x), admitted(total, "ieee", x=x)
    assert covers(narrow, actual)
    share = float((narrow.enclosure.bound_or_zero() / wide.enclosure.bound_or_zero()).max())
    assert share <= (1.0 if n <= 64 else 0.1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_accumulator_is_covered_where_it_is_declared_and_violated_where_not(dtype: str) -> None:
    x = torch.from_numpy(uniform(32, 256))
    actual = x[:, 0].to(getattr(torch, dtype))
    for k in range(1, x.shape[1]):
        actual = actual + x[:, k].to(actual.dtype)
    assert bool(admitted(total, f"ieee,accumulate={dtype}", x=x).covers(actual.float()).all())
    plain = admitted(total, "ieee", x=x).verdict(actual.float())
    assert int((plain == Element.VIOLATED).sum()) > 16


def test_split_inner_dimension_in_bfloat16_is_covered_where_it_is_declared() -> None:
    a, b = (torch.from_numpy(uniform(16, 512)).bfloat16() for _ in range(2))
    b = b.mT.contiguous()
    parts = [a[:, k : k + 128].float() @ b[k : k + 128].float() for k in range(0, 512, 128)]
    actual = parts[0].bfloat16()
    for part in parts[1:]:
        actual = actual + part.bfloat16()
    assert bool(admitted(product, "ieee,split_k=4", a=a, b=b).covers(actual).all())
    assert not bool(admitted(product, "ieee", a=a, b=b).covers(actual).all())


def test_rounded_parts_added_in_float32_are_covered_by_two_parts_however_many_there_are() -> None:
    a, b = (torch.from_numpy(uniform(16, 512)).bfloat16() for _ in range(2))
    b = b.mT.contiguous()
    parts = [(a[:, k : k + 32].float() @ b[k : k + 32].float()).bfloat16().float() for k in range(0, 512, 32)]
    actual = torch.stack(parts).sum(0).bfloat16()
    assert bool(admitted(product, "ieee,split_k=2", a=a, b=b).covers(actual).all())


@pytest.mark.parametrize(("knob", "rounded"), [
    ("tf32", lambda x: torch.from_numpy(simulated.tf32(x.numpy())).float()),
    ("bfloat16", lambda x: x.bfloat16().float()),
    ("float16", lambda x: x.half().float()),
])  # fmt: skip
def test_rounded_operands_are_covered_where_they_are_declared(
    knob: str, rounded: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    a, b = torch.from_numpy(uniform(24, 64)), torch.from_numpy(uniform(64, 24))
    actual = rounded(a) @ rounded(b)
    result = admitted(product, f"ieee,matmul_input={knob}", a=a, b=b)
    assert bool(result.covers(actual).all())
    assert float(((actual.double() - result.enclosure.mid).abs() / result.enclosure.bound_or_zero()).max()) > 0.03
    assert int((admitted(product, "ieee", a=a, b=b).verdict(actual) == Element.VIOLATED).sum()) > 400


def test_operands_that_a_format_holds_are_granted_no_rounding_of_it() -> None:
    a, b = (torch.from_numpy(uniform(8, 8)).bfloat16().float() for _ in range(2))
    bounds = [admitted(product, p, a=a, b=b).enclosure.bound_or_zero() for p in ("ieee", "ieee,matmul_input=tf32")]
    assert torch.equal(*bounds)


PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "product": lambda a, b: a @ b,
    "sum": lambda a, b: (a * b).sum(0),
    "difference": lambda a, b: a - b * 0.5,
    "norm": lambda a, b: torch.nn.functional.layer_norm(a, (8,), eps=0.0) * b,
    "softmax": lambda a, b: torch.softmax(a * 3e37, -1) * b,
    "quotient": lambda a, b: a / (b + 1e-30),
    "mean": lambda a, b: (a.mean(-1, keepdim=True) + b).sum(),
}


def near_underflow(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(seed)
    scales = 2.0 ** generator.integers(-140, -112, (2, 8, 8))
    return tuple(torch.from_numpy((generator.standard_normal((8, 8)) * s).astype(np.float32)) for s in scales)  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PROGRAMS)
def test_evaluation_that_flushes_is_covered_where_that_is_declared(name: str, seed: int) -> None:
    a, b = near_underflow(seed)
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush subnormals")
    actual = PROGRAMS[name](a, b)
    torch.set_flush_denormal(False)
    for profile in ("amx", "ieee,flush_subnormals=true"):
        verdict = admitted(reference(PROGRAMS[name], name=name), profile, a=a, b=b).verdict(actual)
        assert not bool((verdict == Element.VIOLATED).any())
        assert name in ("norm", "quotient") or bool((verdict == Element.COVERED).all())


def test_flushed_difference_is_violated_where_nobody_declares_it() -> None:
    a, b = near_underflow(0)
    exact = a - b * 0.5
    flushed = torch.where(exact.abs() < torch.finfo(torch.float32).smallest_normal, 0.0, exact)
    difference = reference(PROGRAMS["difference"], name="difference")
    assert not bool(admitted(difference, "ieee", a=a, b=b).covers(flushed).all())
    assert bool(admitted(difference, "amx", a=a, b=b).covers(flushed).all())


def test_function_accuracy_can_be_given_for_one_function_or_for_all() -> None:
    exponential = reference(lambda x: torch.exp(x), name="exponential")
    x = torch.linspace(0, 1, 50)
    off = torch.exp(x.double()).float().view(torch.int32).add(9).view(torch.float32)
    assert not bool(admitted(exponential, "ieee", x=x).covers(off).any())
    for profile in ({"name": "ieee", "function_ulp": {"exp": 10}}, "ieee,function_ulp=10", "ieee,function_ulp=exp:10"):
        assert bool(admitted(exponential, profile, x=x).covers(off).all())
    assert not bool(admitted(exponential, "ieee,function_ulp=log:10", x=x).covers(off).any())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "wanted a name, a mapping of knobs or a Profile, found 3"),
        ("ieee,order=any,order=pairwise", "order is given twice"),
        ("tf3", "profile: wanted one of ieee, cuda, .* or auto, found 'tf3', did you mean \"tf32\"?"),
        ("ieee,splitk=2", "profile: no knob is called 'splitk', did you mean \"split_k\"?"),
        ("ieee,order", "profile: wanted NAME,KNOB=VALUE"),
        ("ieee,order=pairwize", 'order: wanted one of any, sequential, pairwise, blocked:n .*"pairwise"?'),
        ("ieee,order=blocked:0", "order: wanted one of"),
        ("ieee,accumulate=float17", 'accumulate: wanted one of float32, float16, bfloat16, .*"float16"?'),
        ("ieee,split_k=0", "split_k: wanted a number of parts"),
        ("ieee,flush_subnormals=yes", "flush_subnormals: wanted true or false"),
        ("ieee,function_ulp=expp:3", 'function_ulp: wanted one of .*did you mean "exp"?'),
        ("ieee,function_ulp=-1", "function_ulp: wanted a number of ulp"),
        ("ieee,matmul_input=float32", "matmul_input: wanted one of tf32, bfloat16, float16"),
        ({"nam": "ieee"}, "profile: no knob is called 'nam'"),
    ],
)
def test_mistaken_profile_is_one_message(given: object, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        resolve(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PROFILES)
def test_title_of_a_profile_is_read_as_that_profile(name: str) -> None:
    knobs = {"accumulate": "float16", "split_k": 3, "flush_subnormals": True, "function_ulp": {"exp": 4.5, "all": 2.0},
             "matmul_input": "bfloat16", "order": "blocked:8"}  # fmt: skip
    profile = resolve({"name": name, **knobs})
    assert resolve(profile.title) == profile


def test_reference_keeps_its_profile_and_a_call_may_name_another() -> None:
    a, b = torch.from_numpy(uniform(8, 16)), torch.from_numpy(uniform(16, 8))
    actual = torch.from_numpy(simulated.tf32(a.numpy())).float() @ torch.from_numpy(simulated.tf32(b.numpy())).float()
    narrow = er.reference(er.matmul, profile="tf32")
    assert bool(narrow(a, b).covers(actual).all())
    assert not bool(er.matmul(a, b).covers(actual).any())
    wide = [narrow.backward(a, b, actual, profile=p)["grad_A"].enclosure.bound_or_zero() for p in (None, "ieee")]
    assert bool((wide[0] > wide[1]).all())
