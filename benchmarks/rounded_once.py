"""What a 16-bit kernel would return that computed in float32 and rounded once: PyTorch's own float32 kernel, cast."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import torch

from kernels_core.coverage import Element
from kernels_core.kernel.call import draw_upstream, run_kernel
from kernels_core.reference import Check, Result, reference

NARROW = (torch.bfloat16, torch.float16)


def rounded_once(function: Any, arguments: Any, check: Check) -> dict[str, torch.Tensor | None]:
    """Return outputs and gradients of PyTorch's float32 kernel on the same values, each rounded once."""
    wide = torch.utils._pytree.tree_map(_widened, arguments)
    other = Check(reference(function), wide, wrt=list(check.wrt))
    other.tensors = {name: t.detach() for name, t in other.tensors.items()}
    upstream = [g.float() if g.dtype in NARROW else g for g in draw_upstream(check, 0)]
    outputs, gradients = run_kernel(function, wide, wide, other, upstream)
    metas = {**check.forward.output_metas, **{f"grad_{name}": check.tensors[name] for name in check.wrt}}
    found = {**outputs, **(gradients or {})}
    return {name: None if t is None else t.to(metas[name].dtype) for name, t in found.items()}


def _widened(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return torch.float32 if value in NARROW else value
    wide = value.detach().float() if value.dtype in NARROW else value.detach().clone()
    return wide.requires_grad_(value.requires_grad)


def count_verdicts(
    results: Mapping[str, Result], actuals: Mapping[str, torch.Tensor | None]
) -> collections.Counter[str]:
    """Return how many elements have each verdict, and, but for the covered ones, of which result."""
    counts: collections.Counter[str] = collections.Counter()
    for name, result in results.items():
        actual = actuals[name]
        verdict = result.verdict(torch.zeros(result.meta.shape, dtype=result.meta.dtype) if actual is None else actual)
        for element in Element:
            here = int((verdict == element).sum())
            counts[element.name.lower()] += here
            if here and element is not Element.COVERED:
                counts[f"{element.name.lower()} {name}"] += here
    return counts
