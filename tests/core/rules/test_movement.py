"""Movement grants no rounding, forwards and backwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.core.rules.checker import check_rule, check_special

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
FUNCTIONS: dict[str, Any] = {
    "slices": lambda x: x[1:, ::2, 3],
    "permutation": lambda x: x.permute(2, 0, 1).flip(0).transpose(0, 2),
    "joining": lambda x: torch.cat([x, x[:, :1]], 1),
    "stacking": lambda x: torch.stack([x, x], 1).squeeze(0).unsqueeze(-1),
    "splitting": lambda x: (*x.split(2, 1), *x.unbind(2), *x.chunk(2, 0)),
    "diagonals": lambda x: (x.diagonal(1, 1, 2), torch.diag_embed(x[0])),
    "triangles": lambda x: x.tril(1) - x.triu(2).neg(),
    "rolling": lambda x: x.roll((1, 2), (0, 2)).rot90(1, (1, 2)),
    "padding": lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), value=0.1),
    "expansion": lambda x: x[:, :1].expand(3, 7, 5).contiguous(),
    "strides": lambda x: x.clone().as_strided((4, 3), (2, 7), 1),
    "writing into slices": lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3).select_scatter(x[0] * 2, 0, 2),
    "copies into views": lambda x: _written(x),
}
SPECIAL = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1e-45, -1e-39, 3e38, 1.0])
ROUNDING = (
    "triangles",
    "joining",
    "stacking",
    "expansion",
    "strides",
    "splitting",
    "diagonals",
    "writing into slices",
    "copies into views",
)


def special(x: torch.Tensor) -> torch.Tensor:
    """Return `x` with special values in front."""
    result = x.clone()
    result.view(-1)[: len(SPECIAL)] = SPECIAL
    return result


def _written(x: torch.Tensor) -> torch.Tensor:
    result = torch.empty(3, 4, 5, dtype=x.dtype)
    result[:, 1:] = x[:, :-1]
    result[:, 0] = x[:, 3]
    return result


@pytest.mark.parametrize("name", FUNCTIONS)
def test_movement_keeps_the_contract(name: str) -> None:
    check_rule(FUNCTIONS[name], [X], caught=0.9 if name not in ROUNDING else 0.0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_movement_carries_special_values(name: str) -> None:
    check_special(FUNCTIONS[name], [special(X)])


def test_movement_takes_empty_and_zero_dimensional_tensors() -> None:
    for shape in [(0, 3), (), (1, 1), (2, 0, 2)]:
        check_rule(lambda x: x.reshape(-1).flip(0).roll(1), [torch.randn(shape)], (torch.float32,))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_border_padding_adds_up_what_returns_to_one_place(mode: str) -> None:
    check_rule(lambda x: torch.nn.functional.pad(x, (2, 3), mode=mode), [X], caught=0.0)


def test_unfold_adds_up_overlapping_windows() -> None:
    check_rule(lambda x: x.unfold(2, 3, 1), [X], caught=0.0)


def test_columns_of_windows_and_their_sums_keep_the_contract() -> None:
    check_rule(lambda x: torch.nn.functional.unfold(x, 2, padding=1, stride=2), [X[None]], caught=0.0)
    check_rule(lambda x: torch.nn.functional.unfold(x, 3, stride=1), [X[None]], caught=0.0)
    check_rule(lambda x: torch.nn.functional.fold(x, (3, 4), 2), [torch.randn(1, 8, 6)], caught=0.0)
