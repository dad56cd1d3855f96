"""`order`: legal sums of every order are covered at every size, and those of another order need not be."""

import numpy as np
import pytest
import torch

from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.filter.growth import height
from kernels_core.profiles import resolve
from kernels_core.reference import reference
from kernels_core.result import Result
from tests.core.profiles import simulated

BLOCK = 32
SIZES = [1, 2, 3, 7, BLOCK - 1, BLOCK, BLOCK + 1, 127, 521]
ROWS = 24

REFERENCES = {
    "sum": reference(lambda x: x.sum(-1), name="total"),
    "mean": reference(lambda x: x.mean(-1), name="average"),
}


def pairwise(terms: np.ndarray) -> np.ndarray:
    return simulated.pairwise(terms).astype(np.float32)


def sequential(terms: np.ndarray) -> np.ndarray:
    return np.add.accumulate(terms, axis=1, dtype=np.float32)[:, -1]


def descending(terms: np.ndarray) -> np.ndarray:
    return sequential(terms[:, ::-1])


def blocked(terms: np.ndarray) -> np.ndarray:
    return simulated.blocked(terms, BLOCK).astype(np.float32)


LEGAL = [("pairwise", pairwise), (f"blocked:{BLOCK}", blocked), ("sequential", sequential), ("sequential", descending)]


def data(kind: str, n: int) -> np.ndarray:
    """Terms that make a sum of the kind err much: equal ones, cancelling ones, huge beside tiny ones."""
    generator = np.random.default_rng(n)
    x = generator.standard_normal((ROWS, n))
    if kind == "equal":
        x = np.broadcast_to(generator.uniform(1, 2, (ROWS, 1)), (ROWS, n))
    elif kind == "cancelling":
        x = np.concatenate([x, -x[:, ::-1]], axis=1)[:, :n]
    elif kind == "wide":
        x = x * 2.0 ** generator.integers(-60, 60, (ROWS, n))
    return np.ascontiguousarray(x, np.float32)


def admitted(name: str, x: np.ndarray, order: str, knobs: str = "") -> Result:
    return Check(REFERENCES[name], {"x": torch.from_numpy(x)}, profile=f"ieee,order={order}{knobs}").outputs()["output"]


def covers(result: Result, actual: np.ndarray) -> bool:
    return bool(result.covers(torch.from_numpy(actual)).all())


@pytest.mark.parametrize("kind", ["normal", "equal", "cancelling", "wide"])
@pytest.mark.parametrize("n", SIZES)
def test_sum_in_its_declared_order_is_covered(n: int, kind: str) -> None:
    x = data(kind, n)
    for order, evaluate in LEGAL:
        assert covers(admitted("sum", x, order), evaluate(x)), order
        assert covers(admitted("mean", x, order), evaluate(x) / np.float32(n)), order


def halved(depths: list[int]) -> int:
    """The additions on the longest path of a sum by halves of terms with so many behind them."""
    while len(depths) > 1:
        pairs = [depths[i : i + 2] for i in range(0, len(depths), 2)]
        depths = [max(pair) + (len(pair) > 1) for pair in pairs]
    return depths[0]


def chained(depths: list[int]) -> int:
    total = depths[0]
    for depth in depths[1:]:
        total = max(total, depth) + 1
    return total


@pytest.mark.parametrize("n", SIZES)
def test_height_is_that_of_the_tree(n: int) -> None:
    terms = [0] * n
    blocks = [chained(terms[i : i + BLOCK]) for i in range(0, n, BLOCK)]
    assert height(resolve("ieee,order=pairwise"), n) == halved(terms)
    assert height(resolve("ieee,order=sequential"), n) == chained(terms)
    assert height(resolve(f"ieee,order=blocked:{BLOCK}"), n) >= chained(blocks)


@pytest.mark.parametrize("order", ["pairwise", "blocked:32"])
def test_sequential_sum_of_equal_terms_is_violated_in_another_order(order: str) -> None:
    x = np.full((1, 1 << 17), 0.1, np.float32)
    actual = torch.from_numpy(sequential(x))
    assert int(admitted("sum", x, order).verdict(actual)) == Element.VIOLATED
    assert covers(admitted("sum", x, "sequential"), sequential(x))
    assert covers(admitted("sum", x, "any"), sequential(x))


def test_sequential_sum_is_granted_what_its_partial_sums_lose_and_no_more() -> None:
    x = data("normal", 4096)
    narrow, wide = admitted("sum", x, "sequential"), admitted("sum", x, "any")
    share = narrow.enclosure.bound_or_zero() / wide.enclosure.bound_or_zero()
    assert float(share.max()) < 0.1
    off = (torch.from_numpy(sequential(x)).double() - narrow.enclosure.mid).abs() / narrow.enclosure.bound_or_zero()
    assert 0.002 < float(off.max()) <= 1


def test_sum_whose_large_terms_come_together_is_violated_where_they_are_declared_to_cancel_at_once() -> None:
    large = np.float32(2.0**20)
    x = np.tile(np.array([large, -large, 0.1, 0.1], np.float32), (1, 256))
    together = np.concatenate([x[:, 0::4], x[:, 2::4], x[:, 3::4], x[:, 1::4]], axis=1)
    assert covers(admitted("sum", x, "any"), sequential(together))
    assert int(admitted("sum", x, "sequential").verdict(torch.from_numpy(sequential(together)))) == Element.VIOLATED


def test_order_of_a_sum_over_several_dimensions_is_any() -> None:
    x = torch.from_numpy(data("cancelling", 64)).reshape(ROWS, 8, 8)
    total = reference(lambda x: x.sum((1, 2)), name="total")
    bounds = [
        Check(total, {"x": x}, profile=f"ieee,order={order}").outputs()["output"] for order in ("sequential", "any")
    ]
    assert torch.equal(*(found.enclosure.bound_or_zero() for found in bounds))


def loop(a: np.ndarray, b: np.ndarray, start: np.ndarray | None, dtype: str, *, fma: bool) -> np.ndarray:
    """The K loop of a matrix product, its running sums in `dtype`."""
    total = np.zeros((len(a), b.shape[1]), dtype) if start is None else start.astype(dtype)
    for k in range(a.shape[1]):
        term = a[:, k, None].astype(np.float64) * b[k]
        total = (total + (term if fma else term.astype(dtype))).astype(dtype)
    return total


PRODUCT = reference(lambda a, b: a @ b, name="product")
MULTIPLY_ADD = reference(lambda c, a, b: torch.addmm(c, a, b), name="multiply_add")


@pytest.mark.parametrize("accumulate", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["normal", "cancelling"])
@pytest.mark.parametrize("inner", SIZES)
def test_loop_over_the_inner_dimension_is_covered(inner: int, kind: str, accumulate: str) -> None:
    a, b = data(kind, inner)[:8], data("normal", inner)[:7].T.copy()
    b = np.abs(b) if kind == "cancelling" else b
    c = data("normal", 7)[:8]
    given = {name: torch.from_numpy(value) for name, value in {"c": c, "a": a, "b": b}.items()}
    profile = f"ieee,order=sequential,accumulate={accumulate}"
    both = Check(MULTIPLY_ADD, given, profile=profile).outputs()["output"]
    alone = Check(PRODUCT, {n: given[n] for n in "ab"}, profile=profile).outputs()["output"]
    for fma in (False, True):
        assert covers(alone, loop(a, b, None, accumulate, fma=fma).astype(np.float32))
        assert covers(alone, loop(a[:, ::-1], b[::-1], None, accumulate, fma=fma).astype(np.float32))
        assert covers(both, loop(a, b, c, accumulate, fma=fma).astype(np.float32))


def test_loop_over_the_inner_dimension_is_granted_far_less_than_any_order() -> None:
    a, b = torch.from_numpy(data("normal", 2048)[:8]), torch.from_numpy(data("normal", 2048)[8:16].T.copy())
    bounds = [
        Check(PRODUCT, {"a": a, "b": b}, profile=f"ieee,order={order}").outputs()["output"].enclosure.bound_or_zero()
        for order in ("sequential", "any")
    ]
    assert float((bounds[0] / bounds[1]).max()) < 0.15


def test_float64_loop_is_decided_by_its_own_partial_sums() -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, 500))
    result = Check(REFERENCES["sum"], {"x": torch.from_numpy(x)}, profile="ieee,order=sequential").outputs()["output"]
    assert bool(result.covers(torch.from_numpy(np.add.accumulate(x, axis=1)[:, -1].copy())).all())
    other = torch.from_numpy(x + np.random.default_rng(1).standard_normal(x.shape) * 1e-13).sum(-1)
    assert bool((result.verdict(other) == Element.VIOLATED).any())
