"""A trial on tensors without elements leaves a kernel's caches as they were."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kernels_core.tracing.remembered import forgotten
from kernels_core.verify import check

SOURCE = """
import functools
import torch

tables = {}
last = None


@functools.lru_cache
def ramp(n):
    return torch.arange(n)


class Kernel:
    seen = []

    def __call__(self, x):
        global last
        tables.setdefault(x.shape, torch.ones(x.shape))
        Kernel.seen.append(x)
        Kernel.kept = x
        last = x
        return x * tables[x.shape] * ramp(x.shape[0])
"""


def test_caches_hold_no_tensor_without_elements_after_a_trial(monkeypatch):
    module = types.ModuleType("remembering")
    monkeypatch.setitem(sys.modules, "remembering", module)
    exec(SOURCE, module.__dict__)
    module.tables["before"] = 1
    with forgotten(module.Kernel), FakeTensorMode():
        module.Kernel()(torch.ones(3))
        assert isinstance(module.tables[torch.Size([3])], FakeTensor)
    assert module.tables == {"before": 1}
    assert module.Kernel.seen == []
    assert not hasattr(module.Kernel, "kept")
    assert module.last is None
    assert not isinstance(module.ramp(3), FakeTensor)


class Rotated(torch.nn.Module):
    """Keeps its table in an attribute, and makes another for longer inputs."""

    def __init__(self):
        super().__init__()
        self.cos = None
        self.tables = {}
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        if self.cos is None or len(self.cos) < len(x):
            self.cos = torch.arange(len(x), dtype=x.dtype).cos().unsqueeze(-1)
        self.tables.setdefault(len(x), torch.ones(len(x), 1))
        return x * self.cos * self.tables[len(x)] * self.weight


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rotated = Rotated()

    def forward(self, x):
        return self.rotated(x)


class Shifted:
    def __init__(self):
        self.shift = None

    def __call__(self, x):
        if self.shift is None:
            self.shift = x.mean().detach()
        return x - self.shift

    def method(self, x):
        return self(x)


def remembering_in_its_closure():
    kept, last = {}, None

    def kernel(x):
        nonlocal last
        if "mean" not in kept:
            kept["mean"] = x.mean().detach()
        last = kept["mean"] if last is None else last
        return x - last

    return kernel


def using_a_net():
    net = Rotated()
    return lambda x: net(x)


@pytest.mark.parametrize(
    "make",
    [Rotated, Nested, Shifted, lambda: Shifted().method, remembering_in_its_closure, using_a_net],
    ids=["module", "nested", "object", "method", "closure", "used"],
)
def test_a_kernel_that_keeps_tables_is_its_own_reference(make):
    assert check(make(), [torch.randn(4, 3, generator=torch.Generator().manual_seed(0))]).covered
