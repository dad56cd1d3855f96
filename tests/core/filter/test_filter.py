"""The filter: bounds contain, do not depend on tiles or threads, and our own error is as small as it says."""

from __future__ import annotations

import flint
import numpy as np
import pytest
import torch

from kernels_core.exact.tier import Budget, resolve
from kernels_core.filter import tiles
from kernels_core.reference import Check, reference


def block(x, w):
    y = torch.softmax(x @ w, -1)
    return torch.tanh(y - y.mean(-1, keepdim=True)) * torch.sigmoid(x @ w)


def enclosures(size, threads=1):
    before = tiles.TILE_ELEMENTS, torch.get_num_threads()
    tiles.TILE_ELEMENTS = size
    torch.set_num_threads(threads)
    try:
        generator = torch.Generator().manual_seed(1)
        inputs = {"x": torch.randn(37, 19, generator=generator), "w": torch.randn(19, 23, generator=generator)}
        check = Check(reference(block), inputs)
        return check.both([torch.randn(37, 23, generator=generator)])
    finally:
        tiles.TILE_ELEMENTS = before[0]
        torch.set_num_threads(before[1])


def test_bounds_do_not_depend_on_the_size_of_tiles():
    whole, pieces = enclosures(1 << 20), enclosures(64)
    for name, result in whole.items():
        torch.testing.assert_close(result.enclosure.bound, pieces[name].enclosure.bound, rtol=1e-12, atol=0)
        torch.testing.assert_close(result.enclosure.mid, pieces[name].enclosure.mid, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_exact_value_lies_within_rad_of_mid(dtype):
    generator = torch.Generator().manual_seed(2)
    inputs = {
        "x": torch.randn(3, 5, generator=generator).to(dtype),
        "w": torch.randn(5, 4, generator=generator).to(dtype),
    }
    results = Check(reference(block), inputs).both([torch.randn(3, 4, generator=generator).to(dtype)])
    for result in results.values():
        mid = result.enclosure.mid.reshape(-1)
        rad = result.rad_abs().reshape(-1)
        seen = []

        def settle(values, index, mid=mid, rad=rad, seen=seen):
            for value, i in zip(values, index, strict=True):
                assert abs(flint.arb(float(mid[i])) - value) < flint.arb(float(rad[i])) + flint.arb(2) ** -300
                seen.append(i)
            return np.ones(len(index), dtype=bool)

        source = result.source
        resolve(source.program, source.name, np.arange(len(mid)), source.inputs, source.integers, settle, Budget())
        assert sorted(seen) == list(range(len(mid)))


def test_inputs_are_left_unchanged():
    x, w = torch.randn(4, 6), torch.randn(6, 3)
    kept = x.clone(), w.clone()
    reference(block).backward(x, w, torch.randn(4, 3))
    assert torch.equal(x, kept[0])
    assert torch.equal(w, kept[1])
    assert x._version == w._version == 0
