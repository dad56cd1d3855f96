"""A trial on tensors without elements leaves a kernel's caches as they were."""

from __future__ import annotations

import sys
import types

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kernels_core.tracing.remembered import forgotten

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
