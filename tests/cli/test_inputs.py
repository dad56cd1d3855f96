"""Inputs are fixed by the seed, element by element, whatever the dtype; a user's own inputs are taken as they are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from exactref_cli.inputs import PlainInput, TensorInput, draw, dtype_named, from_function
from kernels_core.errors import TargetError, UsageError


def one(**given: Any) -> torch.Tensor:
    return draw([TensorInput("x", (4, 5), **given)], seed=3).values["x"]


def test_inputs_come_in_argument_order_with_plain_values_between() -> None:
    drawn = draw([TensorInput("a", (2,)), PlainInput("eps", 1e-5), TensorInput("b", ())], seed=0)
    assert list(drawn.values) == ["a", "eps", "b"]
    assert drawn.values["eps"] == 1e-5
    assert drawn.values["b"].shape == ()


def test_same_seed_draws_the_same_and_another_seed_others() -> None:
    given = [TensorInput("x", (100,))]
    first, again, other = (draw(given, seed).values["x"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_dtypes_round_the_same_numbers(dtype: torch.dtype) -> None:
    assert torch.equal(one(dtype=dtype).double(), one(dtype=torch.float64).to(dtype).double())


def test_families_keep_their_promise() -> None:
    assert one(values="uniform").abs().max() <= 1
    assert one(values="positive").min() >= 0.25
    assert one(values="positive").max() <= 4
    assert torch.equal(one(values="ones"), torch.ones(4, 5))
    assert torch.equal(one(values="zeros"), torch.zeros(4, 5))
    assert one(dtype=torch.bool).dtype == torch.bool


def test_unknown_family_is_refused() -> None:
    with pytest.raises(UsageError, match="no family of values is called 'wild'"):
        one(values="wild")


def test_integers_stay_below_the_smallest_size_unless_said() -> None:
    floating = TensorInput("table", (3, 7))
    drawn = draw([floating, TensorInput("index", (200,), torch.int64)], seed=0).values["index"]
    assert set(drawn.tolist()) == {0, 1, 2}
    drawn = draw([floating, TensorInput("index", (200,), torch.int64, below=5)], seed=0).values["index"]
    assert set(drawn.tolist()) == {0, 1, 2, 3, 4}


def test_listed_values_are_rounded_to_the_dtype() -> None:
    found = one(values=[0.1, 1, -2], dtype=torch.bfloat16)
    assert torch.equal(found, torch.tensor([0.1, 1, -2], dtype=torch.bfloat16))


def test_only_declared_inputs_are_differentiated() -> None:
    a, b = TensorInput("a", (2,)), TensorInput("b", (2,))
    assert draw([a, b], 0).wrt is None
    assert draw([a, TensorInput("b", (2,), requires_grad=False)], 0).wrt == ("a",)
    assert draw([a, TensorInput("i", (2,), torch.int64)], 0).wrt is None


def test_own_inputs_are_cast_and_told_apart_by_requires_grad() -> None:
    def make(generator: torch.Generator) -> dict[str, Any]:
        x = torch.randn(3, generator=generator)
        return {"x": x.requires_grad_(), "w": torch.ones(2), "i": torch.arange(2), "n": 4}

    drawn = from_function(make, seed=0, dtype=torch.float16)
    assert [getattr(value, "dtype", value) for value in drawn.values.values()] == [
        torch.float16, torch.float16, torch.int64, 4,
    ]  # fmt: skip
    assert drawn.wrt == ("x",)
    assert torch.equal(drawn.values["x"], from_function(make, seed=0).values["x"].half())


def test_own_inputs_are_all_differentiated_where_nothing_is_said() -> None:
    assert from_function(lambda generator: {"x": torch.ones(2)}, seed=0).wrt is None


def test_inputs_without_elements_are_refused() -> None:
    def make(generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"x": torch.empty(3, device="meta")}

    with pytest.raises(TargetError, match=r"^make returned a tensor without elements for x: wanted one"):
        from_function(make, 0)


def test_own_inputs_that_raise_show_the_frames_of_the_user() -> None:
    def make(generator: torch.Generator) -> dict[str, Any]:
        raise KeyError("rows")

    with pytest.raises(TargetError, match="make raised") as caught:
        from_function(make, seed=0)
    assert caught.value.frames.endswith("KeyError: 'rows'")
    assert "exactref_cli" not in caught.value.frames


@pytest.mark.parametrize("made", [[1], {1: 2}, None])
def test_own_inputs_that_are_no_dict_are_refused(made: Any) -> None:
    make: Callable[..., Any] = lambda generator: made  # noqa: E731
    with pytest.raises(TargetError, match="wanted a dict of tensors and values by name"):
        from_function(make, seed=0)


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    draw([TensorInput("x", (4,)), TensorInput("i", (4,), torch.int64), TensorInput("m", (4,), torch.bool)], 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_unknown_dtype_names_the_nearest() -> None:
    assert dtype_named("float16") is torch.float16
    with pytest.raises(UsageError, match="no dtype is called 'flaot16', did you mean \"float16\""):
        dtype_named("flaot16")
