"""Pieces shared among threads: each is taken once, settings are as before, results do not depend on threads."""

import pytest
import torch

from kernels_core.filter import tiles
from kernels_core.filter.threads import share
from kernels_core.reference import Check, reference


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_every_item_is_taken_once_by_threads_that_work_alone(two_threads):
    def work(items):
        return [(item, torch.get_num_threads(), torch.is_grad_enabled()) for item in items]

    found = sorted(taken for part in share(work, list(range(100)), torch.device("cpu")) for taken in part)
    assert found == [(item, 1, False) for item in range(100)]
    assert torch.get_num_threads() == 2


def test_a_failing_item_raises_and_restores_the_number_of_threads(two_threads):
    def work(items):
        for item in items:
            if item == 7:
                raise ValueError("seven")

    with pytest.raises(ValueError, match="seven"):
        share(work, list(range(10)), torch.device("cpu"))
    assert torch.get_num_threads() == 2


def block(x, w):
    y = torch.relu(x @ w)
    return torch.softmax(y, -1), y.sum(0)


def test_bounds_and_ties_do_not_depend_on_the_number_of_threads(monkeypatch, two_threads):
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", 64)
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(64, 8, generator=generator), torch.randn(8, 16, generator=generator)
    x[3] = 0
    grads = [torch.ones(64, 16), torch.ones(16)]
    shared = Check(reference(block), {"x": x, "w": w}).both(grads)
    torch.set_num_threads(1)
    alone = Check(reference(block), {"x": x, "w": w}).both(grads)
    for name, result in shared.items():
        assert torch.equal(result.enclosure.mid, alone[name].enclosure.mid)
        assert torch.equal(result.enclosure.bound_or_zero(), alone[name].enclosure.bound_or_zero())
        assert (result.kinks is None) == (alone[name].kinks is None)
