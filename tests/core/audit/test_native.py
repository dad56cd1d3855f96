"""The native run in pieces: the values of PyTorch's operations on whole tensors, or enough of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from kernels_core.audit import native, pieces
from kernels_core.audit.parts import Part, flat_range
from kernels_core.audit.sample import spread
from kernels_core.filter import tiles
from kernels_core.profiles import PROFILES
from kernels_core.reference import Check, reference
from kernels_core.report import Verdict
from kernels_core.verify import verify

Tensor = torch.Tensor


def layer_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w)


def scores(x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax((x * w).reshape(x.shape[0], 4, -1).transpose(1, 2), -1).tril()


def several(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x.expand(2, *x.shape).sin(), (x / w.exp()).unsqueeze(0)])


def evaluated(function: Callable[..., Tensor], rows: int, partial: bool = False) -> dict[str, Tensor | Part]:
    generator = torch.Generator().manual_seed(0)
    inputs = {"x": torch.randn(rows, 16, generator=generator), "w": torch.randn(16, generator=generator)}
    check = Check(reference(function), inputs)
    upstream = [torch.randn(m.shape, generator=generator) for m in check.cotangents.values()]
    given = {**check.tensors, **check.upstream(upstream)}
    return native.evaluate(check.joint, given, PROFILES["ieee"], partial=partial)


@pytest.mark.parametrize("function", [layer_norm, scores, several])
def test_pieces_hold_the_values_of_the_whole(function: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluated(function, 60)
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", 128)
    found = evaluated(function, 60)
    assert {name: torch.equal(value, whole[name]) for name, value in found.items()} == dict.fromkeys(whole, True)


@pytest.mark.parametrize("function", [layer_norm, scores])
def test_parts_hold_values_of_the_whole_from_all_over(
    function: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluated(function, 400)
    monkeypatch.setattr(pieces, "SMALL", 32)
    found = evaluated(function, 400, partial=True)
    parts = {name: value for name, value in found.items() if isinstance(value, Part)}
    assert set(parts) == {"output", "grad_x"}  # grad_w is a sum over everything
    for name, part in parts.items():
        index = torch.arange(400 * 16)
        value, known = part.at(index), ~part.at(index).isnan()
        assert torch.equal(value[known], whole[name].reshape(-1)[known])
        assert [int(block.sum()) > 0 for block in known.chunk(16)] == [True] * 16


def test_part_knows_its_stretches_alone() -> None:
    part = Part([(2, 4), (7, 9)], [torch.tensor([[1.0, 2.0]]), torch.tensor([3.0, 4.0])])
    assert part.at(torch.arange(10)).nan_to_num(-1).tolist() == [-1, -1, 1, 2, -1, -1, -1, 3, 4, -1]


def test_flat_range_of_a_piece_is_where_it_lies() -> None:
    shape, places = (3, 4, 5), torch.arange(60).reshape(3, 4, 5)
    for piece in [(slice(1, 2), slice(1, 3)), (slice(0, 2),), (slice(2, 3), slice(3, 4), slice(1, 4)), ()]:
        assert list(range(*flat_range(piece, shape))) == places[piece].reshape(-1).tolist()


@pytest.mark.parametrize("size", [65537, 100_000, 1 << 20, 12_345_678])
def test_sample_has_one_element_of_each_part(size: int) -> None:
    index = spread(size, torch.device("cpu"), 1000)
    edges = torch.arange(1001) * size // 1000
    assert bool(((edges[:-1] <= index) & (index < edges[1:])).all())


def test_kernel_that_a_part_of_the_native_run_does_not_clear_is_compared_with_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pieces, "SMALL", 8)
    x = torch.ones(2000, 8)
    x[1003] = 1.1  # in none of the pieces; elsewhere 1 * 1 has no error
    report = verify(lambda x: (x * x) * x, {"x": x}, reference=lambda x: x * x * x, wrt=[])
    precision = report.row("output").precision
    assert (report.verdict, precision is not None and precision.legal_rms) == (Verdict.COVERED, None)
