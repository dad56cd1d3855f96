"""Tensors without elements: shapes are kept, and what is made of nothing has the value that nothing has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels_core.filter.tiles import _pieces
from kernels_core.reference import Check, Result, reference
from tests.core.rules.checker import assert_covered, evaluate

Tensor = torch.Tensor
NONE = torch.zeros(0, dtype=torch.long)

# What PyTorch makes of nothing, right in value and shape.
EAGER: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "batch_norm of a vector": (lambda x: F.batch_norm(x, torch.zeros(0), torch.ones(0)), ((0,),)),
    "layer_norm of no rows, with weights": (lambda x, w, b: F.layer_norm(x, (3,), w, b), ((0, 3), (3,), (3,))),
    "layer_norm of no columns, with weights": (lambda x, w, b: F.layer_norm(x, (0,), w, b), ((2, 0), (0,), (0,))),
    "rms_norm of no rows, with weights": (lambda x, w: F.rms_norm(x, (3,), w), ((0, 2, 3), (3,))),
    "group_norm": (lambda x: F.group_norm(x, 2), ((0, 6, 3),)),
    "qr of no rows": (torch.linalg.qr, ((0, 5),)),
    "qr of no columns": (torch.linalg.qr, ((5, 0),)),
    "interpolate linearly": (lambda x: F.interpolate(x, 5, mode="linear"), ((0, 3, 4),)),
    "interpolate, nearest": (lambda x: F.interpolate(x, 5), ((0, 3, 4),)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), ((0, 2, 3, 4), (0, 3, 3, 2))),
    "attention of no features": (F.scaled_dot_product_attention, ((2, 3, 0), (2, 4, 0), (2, 4, 5))),
    "smooth_l1_loss": (F.smooth_l1_loss, ((0,), (0,))),
    "mse_loss": (F.mse_loss, ((0,), (0,))),
    "huber_loss": (F.huber_loss, ((0,), (0,))),
    "multi_margin_loss": (lambda x: F.multi_margin_loss(x, NONE, reduction="none"), ((0, 10),)),
    "var_mean": (torch.var_mean, ((0,),)),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("name", EAGER)
def test_what_pytorch_makes_of_nothing_is_covered(name: str) -> None:
    function, shapes = EAGER[name]
    for result, actual in zip(*evaluate(function, [torch.randn(shape) for shape in shapes]), strict=True):
        assert_covered(result, actual)


@pytest.mark.parametrize("shape", [(4, 0), (0, 4)])
def test_pivots_of_no_columns_or_rows_interchange_nothing(shape: tuple[int, int]) -> None:
    def unpack(x: Tensor) -> Any:
        return torch.lu_unpack(x, torch.tensor([2, 3, 4, 4], dtype=torch.int32))

    for result, actual in zip(*evaluate(unpack, [torch.zeros(shape)], gradient=False), strict=True):
        assert_covered(result, actual)


def results(function: Callable[..., Any], *inputs: Tensor) -> dict[str, Result]:
    check = Check(reference(function), dict(zip(("x", "weight"), inputs, strict=False)))
    return check.both([torch.zeros(meta.shape) for meta in check.forward.output_metas.values()])


def test_gradient_that_sums_over_no_places_is_exactly_zero() -> None:
    found = results(lambda x, weight: F.group_norm(x, 2, weight), torch.zeros(1, 6, 0), torch.ones(6))["grad_weight"]
    assert found.enclosure.mid.tolist() == [0.0] * 6
    assert found.enclosure.bound_or_zero().tolist() == [0.0] * 6


@pytest.mark.parametrize("loss", [F.multi_margin_loss, F.multilabel_margin_loss], ids=lambda f: f.__name__)
def test_mean_of_no_losses_is_not_a_number(loss: Callable[..., Tensor]) -> None:
    target = NONE if loss is F.multi_margin_loss else NONE.reshape(0, 5)
    output = results(lambda x: loss(x, target), torch.zeros(0, 5))["output"].enclosure
    assert math.isnan(output.mid.item())
    assert output.bound_or_zero().item() == 0


def test_boxes_without_points_are_one_tile() -> None:
    assert list(_pieces((0, 5000, 8), 100)) == [(slice(0, 0), slice(0, 5000), slice(0, 8))]
